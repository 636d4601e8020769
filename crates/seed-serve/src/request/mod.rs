//! What a request for text asks, in both of its forms.
//!
//! Every field is either used, known to change nothing, or refused by name.

mod chat;
mod completion;

use std::sync::Arc;

use seed_model::Sampling;
use seed_random::RandomKey;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::fields::Fields;
use crate::model::Facts;

/// Most choices per prompt.
const MOST_CHOICES: usize = 128;

/// Most alternatives listed per token.
const MOST_ALTERNATIVES: usize = 20;

/// Most stop texts, and the bytes of one.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 1024;

/// The two forms of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
}

/// What a request asks.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) form: Form,
    /// Ids of each prompt; none is empty or fills the context.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Responses per prompt.
    pub(crate) choices: usize,
    pub(crate) sampling: Sampling,
    pub(crate) max_new_tokens: usize,
    /// Tokens that end a response, increasing.
    pub(crate) stop_tokens: Arc<[u32]>,
    /// Texts that end a response; none is empty.
    pub(crate) stop_texts: Arc<[String]>,
    pub(crate) seed: Option<u64>,
    /// The stream from which the one response is drawn, in place of one from a seed.
    pub(crate) random_key: Option<RandomKey>,
    /// How many alternatives are listed with each token's log-prob; `None` where log-probs are not asked for.
    pub(crate) log_probs: Option<usize>,
    /// Whether the answer comes piece by piece.
    pub(crate) stream: bool,
    /// Whether a last piece tells the usage.
    pub(crate) stream_usage: bool,
    /// Whether ids of prompt and response are in the answer.
    pub(crate) token_ids: bool,
    /// Whether tokens are named by their ids.
    pub(crate) named_by_id: bool,
    /// Whether control tokens are left out of the text.
    pub(crate) skip_control: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> From<OneOrMore<T>> for Vec<T> {
    fn from(values: OneOrMore<T>) -> Self {
        match values {
            OneOrMore::One(value) => vec![value],
            OneOrMore::More(values) => values,
        }
    }
}

impl Asked {
    /// Reads a request's body.
    pub(crate) fn read(form: Form, bytes: &[u8], facts: &Facts) -> Result<Self, ApiError> {
        let mut fields = Fields::read(bytes)?;
        let model: String = fields
            .take("model")?
            .ok_or_else(|| ApiError::field("model", "`model` is missing"))?;
        if model != facts.name {
            return Err(ApiError::no_model(&model, &facts.name));
        }
        let prompts = match form {
            Form::Chat => vec![chat::prompt(&mut fields, facts)?],
            Form::Completion => completion::prompts(&mut fields, facts)?,
        };
        let param = match form {
            Form::Chat => "messages",
            Form::Completion => "prompt",
        };
        for prompt in &prompts {
            if prompt.is_empty() {
                return Err(ApiError::field(
                    param,
                    format!("`{param}` comes to no token; give at least one to begin with"),
                ));
            }
            if prompt.len() >= facts.context {
                return Err(ApiError::too_long(param, prompt.len(), facts.context));
            }
        }
        let choices = fields.take_count("n", 1, MOST_CHOICES)?.unwrap_or(1);
        let log_probs = match form {
            Form::Chat => chat::log_probs(&mut fields)?,
            Form::Completion => fields.take_count("logprobs", 0, MOST_ALTERNATIVES)?,
        };
        let max_new_tokens = max_new_tokens(form, &mut fields, facts)?;
        let sampling = sampling(&mut fields)?;
        let seed: Option<i64> = fields.take("seed")?;
        let random_key = random_key(&mut fields, prompts.len() * choices)?;
        let (stop_tokens, stop_texts) = stops(&mut fields, facts)?;
        let stream: bool = fields.take("stream")?.unwrap_or(false);
        let stream_usage = stream_usage(&mut fields, stream)?;
        let flag = |fields: &mut Fields, name| fields.take::<bool>(name);
        let token_ids = flag(&mut fields, "return_token_ids")?.unwrap_or(false);
        let named_by_id = flag(&mut fields, "return_tokens_as_token_ids")?.unwrap_or(false);
        let skip_control = flag(&mut fields, "skip_special_tokens")?.unwrap_or(true);
        neutral(form, &mut fields, choices)?;
        fields.finish()?;
        Ok(Self {
            form,
            prompts,
            choices,
            sampling,
            max_new_tokens,
            stop_tokens,
            stop_texts,
            seed: seed.map(i64::cast_unsigned),
            random_key,
            log_probs,
            stream,
            stream_usage,
            token_ids,
            named_by_id,
            skip_control,
        })
    }

    /// Responses asked for.
    pub(crate) fn sequences(&self) -> usize {
        self.prompts.len() * self.choices
    }

    /// Tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.prompts.iter().map(Vec::len).sum()
    }
}

fn max_new_tokens(form: Form, fields: &mut Fields, facts: &Facts) -> Result<usize, ApiError> {
    let newer = match form {
        Form::Chat => fields.take_count("max_completion_tokens", 1, usize::MAX)?,
        Form::Completion => None,
    };
    let older = fields.take_count("max_tokens", 1, usize::MAX)?;
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(ApiError::field(
            "max_tokens",
            format!("`max_tokens` is {older} and `max_completion_tokens` is {newer}; give one of them"),
        ));
    }
    let default = match form {
        Form::Chat => facts.context,
        // OpenAI's.
        Form::Completion => 16,
    };
    Ok(newer.or(older).unwrap_or(default).min(facts.context))
}

/// A trainer's own stream, so that a response is the one that the trainer would have drawn itself.
fn random_key(fields: &mut Fields, responses: usize) -> Result<Option<RandomKey>, ApiError> {
    let wrong = |message: &str| ApiError::field("random_key", message);
    let Some(text) = fields.take::<String>("random_key")? else {
        return Ok(None);
    };
    if responses != 1 {
        return Err(wrong(
            "`random_key` draws one response: give one prompt and `n` = 1",
        ));
    }
    let key = RandomKey::from_hex(&text);
    key.map(Some)
        .ok_or_else(|| wrong("`random_key` must be 64 hexadecimal digits"))
}

fn sampling(fields: &mut Fields) -> Result<Sampling, ApiError> {
    let temperature: f32 = fields.take("temperature")?.unwrap_or(1.0);
    if !(temperature.is_finite() && temperature >= 0.0) {
        return Err(ApiError::field(
            "temperature",
            format!("`temperature` is {temperature}; it must be a number of at least 0"),
        ));
    }
    let top_p: f32 = fields.take("top_p")?.unwrap_or(1.0);
    if !(top_p > 0.0 && top_p <= 1.0) {
        return Err(ApiError::field(
            "top_p",
            format!("`top_p` is {top_p}; it must be above 0 and at most 1"),
        ));
    }
    let top_k: i64 = fields.take("top_k")?.unwrap_or(0);
    let top_k = match top_k {
        -1 => 0,
        top_k => usize::try_from(top_k).map_err(|_| {
            ApiError::field(
                "top_k",
                format!("`top_k` is {top_k}; it must be at least 1, or 0 or -1 for all"),
            )
        })?,
    };
    Ok(Sampling {
        temperature,
        top_p,
        top_k,
    })
}

type Stops = (Arc<[u32]>, Arc<[String]>);

fn stops(fields: &mut Fields, facts: &Facts) -> Result<Stops, ApiError> {
    let texts: Vec<String> = fields
        .take::<OneOrMore<String>>("stop")?
        .map_or_else(Vec::new, Vec::from);
    if texts.len() > MOST_STOPS {
        let message = format!("`stop` has {} texts, more than {MOST_STOPS}", texts.len());
        return Err(ApiError::field("stop", message));
    }
    if let Some(text) = texts
        .iter()
        .find(|text| text.is_empty() || text.len() > LONGEST_STOP)
    {
        let message = format!(
            "a text of `stop` has {} bytes; it must have between 1 and {LONGEST_STOP}",
            text.len()
        );
        return Err(ApiError::field("stop", message));
    }
    let mut tokens: Vec<u32> = fields.take("stop_token_ids")?.unwrap_or_default();
    in_vocabulary("stop_token_ids", &tokens, facts)?;
    if !fields.take::<bool>("ignore_eos")?.unwrap_or(false) {
        tokens.extend(&facts.end_tokens);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok((tokens.into(), texts.into()))
}

fn stream_usage(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct StreamOptions {
        #[serde(default)]
        include_usage: Option<bool>,
        // What hides lengths from listeners is not done here and changes no content.
        #[serde(default, rename = "include_obfuscation")]
        _include_obfuscation: Option<bool>,
    }
    let options: Option<StreamOptions> = fields.take("stream_options")?;
    match options {
        Some(_) if !stream => Err(ApiError::field(
            "stream_options",
            "`stream_options` needs `stream` to be true",
        )),
        Some(options) => Ok(options.include_usage.unwrap_or(false)),
        None => Ok(false),
    }
}

/// Fields that other servers know, where they ask for nothing.
fn neutral(form: Form, fields: &mut Fields, choices: usize) -> Result<(), ApiError> {
    let (zero, off) = (json!(0), json!(false));
    let common: [(&str, &[Value]); 8] = [
        ("presence_penalty", std::slice::from_ref(&zero)),
        ("frequency_penalty", std::slice::from_ref(&zero)),
        ("repetition_penalty", &[json!(1)]),
        ("min_p", std::slice::from_ref(&zero)),
        ("min_tokens", std::slice::from_ref(&zero)),
        ("logit_bias", &[json!({})]),
        ("include_stop_str_in_output", std::slice::from_ref(&off)),
        ("prompt_logprobs", &[]),
    ];
    for (name, values) in common {
        fields.take_neutral(name, values)?;
    }
    match form {
        Form::Chat => {
            let (none, empty) = (json!("none"), json!([]));
            let chat: [(&str, &[Value]); 9] = [
                ("add_special_tokens", std::slice::from_ref(&off)),
                ("response_format", &[json!({"type": "text"})]),
                ("tools", std::slice::from_ref(&empty)),
                ("tool_choice", &[none, json!("auto")]),
                ("parallel_tool_calls", &[json!(true), off.clone()]),
                ("modalities", &[json!(["text"])]),
                ("continue_final_message", std::slice::from_ref(&off)),
                ("add_generation_prompt", &[json!(true)]),
                ("functions", std::slice::from_ref(&empty)),
            ];
            for (name, values) in chat {
                fields.take_neutral(name, values)?;
            }
        }
        Form::Completion => {
            fields.take_neutral("add_special_tokens", &[json!(true)])?;
            fields.take_neutral("echo", &[off])?;
            fields.take_neutral("suffix", &[json!("")])?;
            fields.take_neutral("best_of", &[json!(choices)])?;
        }
    }
    Ok(())
}

/// Refuses ids that the model does not know.
fn in_vocabulary(param: &str, ids: &[u32], facts: &Facts) -> Result<(), ApiError> {
    match ids.iter().find(|&&id| id as usize >= facts.vocabulary_size) {
        Some(id) => Err(ApiError::field(
            param,
            format!(
                "token id {id} in `{param}` is outside the vocabulary of {}",
                facts.vocabulary_size
            ),
        )),
        None => Ok(()),
    }
}
