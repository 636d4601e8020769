//! The fields of a chat completion: messages through the model's template, and how log-probs are asked for.

use seed_model::{Message, Role};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::MOST_ALTERNATIVES;
use crate::api_error::ApiError;
use crate::fields::Fields;
use crate::model::Facts;

/// The ids of the conversation, through the beginning of the model's turn.
pub(super) fn prompt(fields: &mut Fields, facts: &Facts) -> Result<Vec<u32>, ApiError> {
    let messages: Vec<Map<String, Value>> = fields
        .take("messages")?
        .ok_or_else(|| ApiError::field("messages", "`messages` is missing"))?;
    if messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty"));
    }
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(index, fields)| message(index, fields))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(chat) = &facts.chat else {
        return Err(ApiError::request(format!(
            "the model `{}` has no chat template; use `/v1/completions`",
            facts.name
        )));
    };
    let thinking = thinking(fields)?;
    let chat = chat.clone().with_thinking(thinking);
    chat.encode(&facts.tokenizer, &messages, true)
        .map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Of the variables that a template may look at, the one that is known.
fn thinking(fields: &mut Fields) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Variables {
        #[serde(default)]
        enable_thinking: Option<bool>,
    }
    let variables: Option<Variables> = fields.take("chat_template_kwargs")?;
    Ok(variables
        .and_then(|variables| variables.enable_thinking)
        .unwrap_or(false))
}

fn message(index: usize, mut fields: Map<String, Value>) -> Result<Message, ApiError> {
    let wrong = |field: &str, message: String| {
        let param = format!("messages[{index}].{field}");
        ApiError::field(param.clone(), format!("`{param}` {message}"))
    };
    let role = match fields.shift_remove("role") {
        Some(Value::String(role)) => match role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => {
                let message =
                    format!("is `{role}`; there are `system`, `developer`, `user` and `assistant` here");
                return Err(wrong("role", message));
            }
        },
        _ => return Err(wrong("role", "is missing or no text".to_owned())),
    };
    let content = match fields.shift_remove("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for part in parts {
                let is_text = part.get("type").and_then(Value::as_str) == Some("text");
                match part.get("text").and_then(Value::as_str) {
                    Some(part) if is_text => text.push_str(part),
                    _ => return Err(wrong("content", "has a part that is no text".to_owned())),
                }
            }
            text
        }
        _ => return Err(wrong("content", "is missing or no text".to_owned())),
    };
    // A client that sends back what it received sends empty fields with it.
    let said = |value: &Value| !(value.is_null() || value.as_array().is_some_and(Vec::is_empty));
    if let Some((name, _)) = fields.iter().find(|(_, value)| said(value)) {
        return Err(wrong(name, "is not supported here".to_owned()));
    }
    Ok(Message { role, content })
}

/// How many alternatives are listed with each log-prob, if log-probs are asked for.
pub(super) fn log_probs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let asked: bool = fields.take("logprobs")?.unwrap_or(false);
    let alternatives = fields.take_count("top_logprobs", 0, MOST_ALTERNATIVES)?;
    match (asked, alternatives) {
        (false, Some(count)) if count > 0 => Err(ApiError::field(
            "top_logprobs",
            "`top_logprobs` needs `logprobs` to be true",
        )),
        (false, _) => Ok(None),
        (true, count) => Ok(Some(count.unwrap_or(0))),
    }
}
