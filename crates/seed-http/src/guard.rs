//! Whom a server lets in: everyone on this machine, or whoever carries the token.
//!
//! Not for: users or rights; there is one token for everything.

use std::net::SocketAddr;

use thiserror::Error;

use crate::Secret;

/// Why a server must not listen as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GuardFault {
    /// Others could reach it without a token.
    #[error(
        "`{address}` can be reached from other machines: name an environment variable with a token, or listen on a loopback address such as `127.0.0.1`"
    )]
    Open {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The variable that should hold the token is unset, or its content could not stand in a header.
    #[error(
        "environment variable `{variable}` holds no token: set it to one word of visible ASCII characters"
    )]
    NoToken {
        /// The variable.
        variable: String,
    },
}

/// Decides which requests are let in.
#[derive(Clone, Debug)]
pub struct Guard {
    /// A digest of the token: comparing digests takes the same time for every wrong token.
    token: Option<blake3::Hash>,
}

impl Guard {
    /// The guard of a server at `address`, whose token is in the environment variable `variable`. Without one it must
    /// listen on the loopback address, where it lets everyone in.
    ///
    /// # Errors
    /// [`GuardFault`] as described there.
    pub fn new(address: SocketAddr, variable: Option<&str>) -> Result<Self, GuardFault> {
        Self::with_environment(address, variable, |variable| std::env::var(variable).ok())
    }

    fn with_environment(
        address: SocketAddr,
        variable: Option<&str>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, GuardFault> {
        let token = match variable {
            Some(variable) => {
                let secret = environment(variable).and_then(|text| Secret::read(&text));
                let secret = secret.ok_or_else(|| GuardFault::NoToken {
                    variable: variable.to_owned(),
                })?;
                Some(blake3::hash(secret.bearer().as_bytes()))
            }
            None if address.ip().is_loopback() => None,
            None => return Err(GuardFault::Open { address }),
        };
        Ok(Self { token })
    }

    /// Whether a request with this `authorization` header is let in.
    pub fn admits(&self, authorization: Option<&str>) -> bool {
        let Some(expected) = self.token else {
            return true;
        };
        let given = authorization.and_then(|header| {
            // The scheme's case is free (RFC 9110, 11.1).
            let (scheme, token) = header.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        given.is_some_and(|token| blake3::hash(format!("Bearer {token}").as_bytes()) == expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str, variable: Option<&str>, value: &str) -> Result<Guard, GuardFault> {
        let value = value.to_owned();
        Guard::with_environment(address.parse().unwrap(), variable, |name| {
            (name == "TOKEN").then(|| value.clone())
        })
    }

    #[test]
    fn without_a_token_only_this_machine_is_let_in() {
        assert!(guard("127.0.0.1:0", None, "").unwrap().admits(None));
        assert!(guard("[::1]:80", None, "").unwrap().admits(Some("Bearer any")));
        let open = guard("0.0.0.0:80", None, "").unwrap_err();
        assert!(open.to_string().starts_with("`0.0.0.0:80` can be reached"));
        for (variable, value) in [("TOKEN", " "), ("TOKEN", "two words"), ("OTHER", "word")] {
            let fault = guard("127.0.0.1:0", Some(variable), value).unwrap_err();
            assert!(fault.to_string().contains(&format!("`{variable}`")), "{fault}");
        }
    }

    #[test]
    fn the_token_opens_and_nothing_else() {
        let guard = guard("0.0.0.0:80", Some("TOKEN"), "word\n").unwrap();
        for header in ["Bearer word", "bearer  word", "BEARER word "] {
            assert!(guard.admits(Some(header)), "{header}");
        }
        for header in [
            "Bearer Word",
            "word",
            "Basic word",
            "Bearer",
            "Bearer word word",
            "",
        ] {
            assert!(!guard.admits(Some(header)), "{header}");
        }
        assert!(!guard.admits(None));
        assert!(!format!("{guard:?}").contains("word"));
    }
}
