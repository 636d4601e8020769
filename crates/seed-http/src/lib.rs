//! What the program's HTTP clients and servers agree on: whom an address reaches, tokens that stay hidden, an agent that
//! follows nobody and waits no longer than it was told, and whom a server lets in.
//!
//! Not for: what is asked and answered, or which failures are tried again.

mod guard;

use std::fmt;
use std::time::Duration;

use ureq::http::Uri;

pub use guard::{Guard, GuardFault};

/// Whom an address reaches, and who can listen in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The scheme is `https`.
    pub is_encrypted: bool,
    /// The host is this machine.
    pub is_loopback: bool,
    /// There is a part behind `?`.
    pub has_query: bool,
}

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFault {
    /// It is no URL.
    NoUrl,
    /// It names no host.
    NoHost,
    /// It holds a user or a password, and must not be shown.
    Credentials,
    /// Its scheme is neither `http` nor `https`.
    Scheme,
}

impl Address {
    /// Reads an address; resolves no name.
    ///
    /// # Errors
    /// The first [`AddressFault`] that applies.
    pub fn read(url: &str) -> Result<Self, AddressFault> {
        let uri: Uri = url.parse().map_err(|_| AddressFault::NoUrl)?;
        let authority = uri.authority().ok_or(AddressFault::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(AddressFault::Credentials);
        }
        let is_encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(AddressFault::Scheme),
        };
        let host = authority.host().trim_matches(['[', ']']);
        let is_loopback = host.eq_ignore_ascii_case("localhost")
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        Ok(Self {
            is_encrypted,
            is_loopback,
            has_query: uri.query().is_some(),
        })
    }
}

/// A token or key that shows itself to nobody.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The secret in `text`, without surrounding space; `None` where it could not be a header's value.
    pub fn read(text: &str) -> Option<Self> {
        let secret = text.trim();
        let fits = !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(secret.to_owned()))
    }

    /// The value of the `authorization` header.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hidden]")
    }
}

/// `text` with the secret hidden: some servers repeat what they were given.
pub fn redacted(text: &str, secret: Option<&Secret>) -> String {
    match secret {
        Some(Secret(secret)) => text.replace(secret.as_str(), "[hidden]"),
        None => text.to_owned(),
    }
}

/// At most `characters` of an error body, on one line, with the secret hidden.
pub fn excerpt(body: &[u8], characters: usize, secret: Option<&Secret>) -> String {
    let text = redacted(&String::from_utf8_lossy(body), secret);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        "(no body)".into()
    } else {
        line.chars().take(characters).collect()
    }
}

/// An agent whose requests take `timeout` at most, from connecting to the last byte. A status is no error, and redirects
/// are not followed: one could carry a secret to another host. With `direct`, no proxy is asked.
pub fn agent(timeout: Duration, direct: bool) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("seed/", env!("CARGO_PKG_VERSION")));
    if direct {
        config = config.proxy(None);
    }
    config.build().new_agent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_who_can_listen_in() {
        let read = |url| {
            let address = Address::read(url)?;
            Ok((address.is_encrypted, address.is_loopback, address.has_query))
        };
        assert_eq!(read("http://localhost:8000/v1"), Ok((false, true, false)));
        assert_eq!(read("http://[::1]/v1?a"), Ok((false, true, true)));
        assert_eq!(read("https://host/v1"), Ok((true, false, false)));
        assert_eq!(read("http://127.0.0.1.example/"), Ok((false, false, false)));
        assert_eq!(read("no address"), Err(AddressFault::NoUrl));
        assert_eq!(read("/retrieve"), Err(AddressFault::NoHost));
        assert_eq!(
            read("http://user:word@127.0.0.1/"),
            Err(AddressFault::Credentials)
        );
        assert_eq!(read("ftp://host/"), Err(AddressFault::Scheme));
    }

    #[test]
    fn a_secret_reaches_the_header_and_nothing_else() {
        let secret = Secret::read(" sk-1 \n").unwrap();
        assert_eq!(secret.bearer(), "Bearer sk-1");
        assert_eq!(format!("{secret:?}"), "[hidden]");
        assert_eq!(excerpt(b"no\n  sk-1 here", 9, Some(&secret)), "no [hidde");
        assert_eq!(excerpt(b" \n", 9, None), "(no body)");
        assert!(
            Secret::read(" ").is_none() && Secret::read("a b").is_none() && Secret::read("\u{e9}").is_none()
        );
    }
}
