//! The fields of a request body, taken one by one, so that a fault names its field and nothing is left unread.
//!
//! Not for: what the fields mean.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::api_error::ApiError;

/// Fields that say nothing about the response.
const WITHOUT_EFFECT: [&str; 6] = [
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
];

/// The fields not yet taken.
pub(crate) struct Fields {
    fields: Map<String, Value>,
}

impl Fields {
    /// The fields of a JSON object.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self { fields }),
            Ok(_) => Err(ApiError::request("the body must be a JSON object")),
            Err(error) => Err(ApiError::request(format!("the body is no JSON: {error}"))),
        }
    }

    /// Takes a field; `null` counts as absent.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.fields.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| ApiError::field(name, format!("`{name}` is not valid: {error}"))),
        }
    }

    /// Takes a number within bounds.
    pub(crate) fn take_count(
        &mut self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, ApiError> {
        let count: Option<usize> = self.take(name)?;
        match count {
            Some(count) if !(least..=most).contains(&count) => Err(ApiError::field(
                name,
                format!("`{name}` is {count}; it must be between {least} and {most}"),
            )),
            count => Ok(count),
        }
    }

    /// Takes a field that must be absent or have a value that changes nothing.
    pub(crate) fn take_neutral(&mut self, name: &str, neutral: &[Value]) -> Result<(), ApiError> {
        match self.take::<Value>(name)? {
            Some(value) if !neutral.iter().any(|neutral| same(neutral, &value)) => {
                let allowed: Vec<String> = neutral.iter().map(|value| format!("`{value}`")).collect();
                Err(ApiError::field(
                    name,
                    format!(
                        "`{name}` is not supported here; leave it out{}",
                        if allowed.is_empty() {
                            String::new()
                        } else {
                            format!(" or set it to {}", allowed.join(" or "))
                        }
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what was not taken: a field that is silently ignored would change nothing without anyone noticing.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        let left = self
            .fields
            .iter()
            .find(|(name, value)| !value.is_null() && !WITHOUT_EFFECT.contains(&name.as_str()));
        match left {
            Some((name, _)) => Err(ApiError::field(
                name.clone(),
                format!("`{name}` is not supported here"),
            )),
            None => Ok(()),
        }
    }
}

/// Whether two values are equal, `1` and `1.0` included.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}
