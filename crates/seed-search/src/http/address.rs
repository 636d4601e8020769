//! What an address says about who can listen in.
//!
//! Not for: resolving names.

use ureq::http::Uri;

use crate::SearchError;

/// What an address must be.
const FORM: &str = "an address such as `http://127.0.0.1:8000/retrieve`";

/// Reads the address of a retrieval server; true when it is on this machine.
pub(super) fn is_loopback_url(url: &str) -> Result<bool, SearchError> {
    let invalid = |value: &str, rule| SearchError::Option {
        option: "urls",
        value: value.to_owned(),
        rule,
    };
    let uri: Uri = url.parse().map_err(|_| invalid(url, FORM))?;
    let authority = uri.authority().ok_or_else(|| invalid(url, FORM))?;
    if authority.as_str().contains('@') {
        return Err(invalid(
            "[hidden]",
            "free of user and password; put a token in an environment variable",
        ));
    }
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(invalid(url, FORM));
    }
    let host = authority.host().trim_matches(['[', ']']);
    Ok(host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()))
}
