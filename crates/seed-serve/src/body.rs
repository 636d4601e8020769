//! Reading request bodies, bounded in size and time.
//!
//! Not for: what is in them.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, header};

use crate::ServeOptions;
use crate::api_error::ApiError;

/// The whole body of a request in JSON.
pub(crate) async fn read(headers: &HeaderMap, body: Body, options: &ServeOptions) -> Result<Bytes, ApiError> {
    // A browser sends other kinds to this machine for any page, and asks before it sends this one.
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(ApiError::media_type());
    }
    let limit = options.max_body_bytes;
    let said = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::too_large(limit));
    }
    match tokio::time::timeout(options.body_timeout, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // The other reason, a client that went away, reads no answer.
        Ok(Err(_)) => Err(ApiError::too_large(limit)),
        Err(_) => Err(ApiError::too_slow()),
    }
}
