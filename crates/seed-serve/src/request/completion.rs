//! The prompts of a plain completion: texts, or token ids as they are.

use serde::Deserialize;

use super::in_vocabulary;
use crate::api_error::ApiError;
use crate::fields::Fields;
use crate::model::Facts;

/// Most prompts of one request.
const MOST_PROMPTS: usize = 1024;

#[derive(Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    IdLists(Vec<Vec<u32>>),
}

/// The ids of every prompt. A text never yields a control token, whatever it spells; ids are taken as they are.
pub(super) fn prompts(fields: &mut Fields, facts: &Facts) -> Result<Vec<Vec<u32>>, ApiError> {
    let wrong = |message: &str| ApiError::field("prompt", message);
    let prompt = fields.take::<Prompt>("prompt").map_err(|_| {
        wrong("`prompt` must be a text, a list of token ids, or a list of either; ids are numbers of at least 0")
    })?;
    let encode = |text: &str| {
        let mut ids = facts.opening_tokens.clone();
        ids.extend(facts.tokenizer.encode_text(text));
        ids
    };
    let prompts = match prompt.ok_or_else(|| wrong("`prompt` is missing"))? {
        Prompt::Text(text) => vec![encode(&text)],
        Prompt::Ids(ids) => vec![ids],
        Prompt::Texts(texts) => texts.iter().map(|text| encode(text)).collect(),
        Prompt::IdLists(lists) => lists,
    };
    if prompts.is_empty() || prompts.len() > MOST_PROMPTS {
        let message = format!(
            "`prompt` has {} prompts; it must have 1 to {MOST_PROMPTS}",
            prompts.len()
        );
        return Err(wrong(&message));
    }
    for ids in &prompts {
        in_vocabulary("prompt", ids, facts)?;
    }
    Ok(prompts)
}
