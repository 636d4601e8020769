//! Answers that say what is wrong, in OpenAI's shape.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// A word that programs can look at.
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// The request is wrong as a whole.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// One field is wrong.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::request(message)
        }
    }

    /// The prompt leaves no room for a response.
    pub(crate) fn too_long(param: &str, length: usize, context: usize) -> Self {
        Self {
            code: Some("context_length_exceeded"),
            ..Self::field(
                param,
                format!(
                    "the prompt has {length} tokens; this model's context holds {context}, of which at least one must be left for the response: shorten the prompt"
                ),
            )
        }
    }

    /// No such model.
    pub(crate) fn no_model(asked: &str, served: &str) -> Self {
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(
                StatusCode::NOT_FOUND,
                format!("there is no model `{asked}` here; this server has `{served}`"),
            )
        }
    }

    /// No such path.
    pub(crate) fn no_path(path: &str) -> Self {
        let message = format!(
            "there is nothing at `{path}`; there are `/v1/chat/completions`, `/v1/completions`, `/v1/models` and `/health`"
        );
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The path is there, for another method.
    pub(crate) fn method(path: &str, method: &str) -> Self {
        let message = format!("`{path}` does not answer to {method}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    /// The token is missing or wrong.
    pub(crate) fn unauthorized() -> Self {
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(
                StatusCode::UNAUTHORIZED,
                "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`",
            )
        }
    }

    /// The body is larger than allowed.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the body has more than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The body did not come in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
    }

    /// The body is of another kind.
    pub(crate) fn media_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be JSON: send `Content-Type: application/json`",
        )
    }

    /// There is no place left.
    pub(crate) fn overloaded() -> Self {
        Self {
            code: Some("overloaded"),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many sequences are waiting; try again later",
            )
        }
    }

    /// Weights are fixed.
    pub(crate) fn fixed_weights() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "this server does not change its weights; start it with `--weights-from FOLDER` to allow it",
        )
    }

    /// Generation failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The body of the answer.
    pub(crate) fn body(&self) -> Value {
        let kind = if self.status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        };
        json!({"error": {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, &self.body());
        let header = match self.status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        if let Some((name, value)) = header {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// An answer in JSON.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, body.to_string()).into_response()
}
