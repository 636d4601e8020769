//! Other weights on request, as SGLang takes them: `POST /update_weights_from_disk`.
//!
//! Requests before it are answered with the old weights, requests after it with the new ones. Only folders below one that
//! the server was started with are read.
//!
//! Not for: weights over the network, or models of another shape.

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api_error::{ApiError, json_response};
use crate::body;
use crate::fields::Fields;
use crate::server::{Shared, ended};
use crate::worker::{Command, Replacement};

/// Reads the request, and waits until the weights are there.
pub(crate) async fn update_weights(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = body::read(headers, body, &shared.options).await?;
    let Some(allowed) = &shared.options.weights_folder else {
        return Err(ApiError::fixed_weights());
    };
    let mut fields = Fields::read(&bytes)?;
    let path: PathBuf = fields
        .take("model_path")?
        .ok_or_else(|| ApiError::field("model_path", "`model_path` is missing"))?;
    let version: Option<String> = fields.take("weight_version")?;
    // No cache outlives a change of weights here, and requests are always answered before it.
    for name in ["flush_cache", "torch_empty_cache", "recapture_cuda_graph"] {
        fields.take_neutral(name, &[json!(true), json!(false)])?;
    }
    for name in ["abort_all_requests", "is_async", "keep_pause"] {
        fields.take_neutral(name, &[json!(false)])?;
    }
    fields.take_neutral("load_format", &[json!("auto"), json!("safetensors")])?;
    fields.finish()?;
    let folder = below(allowed, &path)?;
    let (done, told) = oneshot::channel();
    let replacement = Replacement {
        folder,
        version,
        done,
    };
    let sent = shared.commands.send(Command::Replace(replacement));
    sent.map_err(|_| ended())?;
    let (status, message, digest) = match told.await.map_err(|_| ended())? {
        Ok(digest) => (
            StatusCode::OK,
            "the weights were replaced".to_owned(),
            json!(digest),
        ),
        Err(problem) => (StatusCode::BAD_REQUEST, problem, Value::Null),
    };
    let body = json!({
        "success": status == StatusCode::OK,
        "message": message,
        "num_paused_requests": 0,
        // Of names, shapes and bits: whoever wrote the folder can see that these are the weights that were meant.
        "weights_digest": digest,
    });
    Ok(json_response(status, &body))
}

/// The real place of a folder, if that is below `allowed`.
fn below(allowed: &Path, path: &Path) -> Result<PathBuf, ApiError> {
    let real = |path: &Path| {
        fs_err::canonicalize(path).map_err(|error| ApiError::field("model_path", error.to_string()))
    };
    let (folder, allowed) = (real(&allowed.join(path))?, real(allowed)?);
    if folder.starts_with(&allowed) {
        Ok(folder)
    } else {
        let message = "`model_path` is not below the folder that this server may read weights from";
        Err(ApiError::field("model_path", message))
    }
}
