//! The two ways in which engines take token ids and give back ids with log-probs.
//!
//! Pure functions between values and JSON. Facts about the protocols: vLLM's OpenAI-compatible server (its completions
//! take ids as prompt and return ids with `return_token_ids`), SGLang's native `/generate`.
//!
//! Not for: sending.

use seed_model::Sampling;
use seed_random::RandomKey;
use serde::Deserialize;
use serde_json::{Value, json};

/// How an engine is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's completions with vLLM's extensions; adapters are loaded as vLLM loads them.
    Vllm,
    /// `seed serve`: asked as vLLM, given whole models as SGLang.
    Seed,
    /// SGLang's own interface.
    Sglang,
}

/// A response to be sampled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub(crate) ids: Vec<u32>,
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<u32>,
    /// The stream to draw from. Other engines than `seed serve` take a number made from it.
    pub(crate) key: RandomKey,
    /// The model or adapter.
    pub(crate) model: String,
    /// Ids are below this.
    pub(crate) vocabulary_size: usize,
}

/// What an engine sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The sampled ids, the end token included.
    pub token_ids: Vec<u32>,
    /// The log-prob that the engine gives for each.
    pub log_probs: Vec<f32>,
    /// Whether a stop token ended it.
    pub stopped: bool,
    /// The weights it was sampled with, where the engine says so.
    pub version: Option<String>,
}

impl Dialect {
    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::Seed => "`seed serve`",
            Self::Sglang => "SGLang",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Vllm | Self::Seed => "/v1/completions",
            Self::Sglang => "/generate",
        }
    }

    /// The body of a request; `adapter` says that the model's name is an adapter's.
    pub(crate) fn body(self, ask: &Ask, adapter: bool) -> Value {
        let sampling = &ask.sampling;
        let top_k = if sampling.top_k == 0 {
            json!(-1)
        } else {
            json!(sampling.top_k)
        };
        // Below 2^63, which every engine takes.
        let seed = ask.key.to_u64() >> 1;
        match self {
            Self::Vllm | Self::Seed => {
                let mut body = json!({
                    "model": ask.model,
                    "prompt": ask.ids,
                    "max_tokens": ask.max_new_tokens,
                    "temperature": sampling.temperature,
                    "top_p": sampling.top_p,
                    "top_k": top_k,
                    "seed": seed,
                    // The stop set is the caller's own.
                    "ignore_eos": true,
                    "stop_token_ids": ask.stop,
                    "logprobs": 0,
                    "return_token_ids": true,
                    "skip_special_tokens": false,
                    "stream": false,
                });
                if self == Self::Seed {
                    // The engine in this process would draw from the same stream.
                    body["random_key"] = json!(ask.key.to_hex());
                }
                body
            }
            Self::Sglang => {
                let mut body = json!({
                    "input_ids": ask.ids,
                    "sampling_params": {
                        "max_new_tokens": ask.max_new_tokens,
                        "temperature": sampling.temperature,
                        "top_p": sampling.top_p,
                        "top_k": top_k,
                        "sampling_seed": seed,
                        "stop_token_ids": ask.stop,
                        "skip_special_tokens": false,
                    },
                    "return_logprob": true,
                    "stream": false,
                });
                if adapter {
                    body["lora_path"] = json!(ask.model);
                }
                body
            }
        }
    }

    /// Reads and checks an answer; the error says what is wrong with it.
    pub(crate) fn read(self, ask: &Ask, bytes: &[u8]) -> Result<Answer, String> {
        let answer = match self {
            Self::Vllm | Self::Seed => read_vllm(ask, bytes)?,
            Self::Sglang => read_sglang(bytes)?,
        };
        check(ask, &answer)?;
        // An end token that also was the last one allowed is an end all the same.
        let stopped = answer.token_ids.last().is_some_and(|id| ask.stop.contains(id));
        Ok(Answer { stopped, ..answer })
    }
}

#[derive(Deserialize)]
struct VllmAnswer {
    model: Option<String>,
    weight_version: Option<String>,
    choices: Vec<VllmChoice>,
}

#[derive(Deserialize)]
struct VllmChoice {
    finish_reason: Option<String>,
    logprobs: Option<VllmLogProbs>,
    token_ids: Option<Vec<u32>>,
    prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct VllmLogProbs {
    token_logprobs: Vec<f32>,
}

fn read_vllm(ask: &Ask, bytes: &[u8]) -> Result<Answer, String> {
    let answer: VllmAnswer = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let [choice] = <[VllmChoice; 1]>::try_from(answer.choices)
        .map_err(|choices| format!("there are {} choices and not one", choices.len()))?;
    if choice.prompt_token_ids.is_some_and(|ids| ids != ask.ids) {
        return Err("the engine read other ids than it was sent".to_owned());
    }
    if answer.model.is_some_and(|model| model != ask.model) {
        return Err(format!("the answer is not of model `{}`", ask.model));
    }
    Ok(Answer {
        token_ids: choice.token_ids.ok_or("the answer has no `token_ids`")?,
        log_probs: choice
            .logprobs
            .ok_or("the answer has no `logprobs`")?
            .token_logprobs,
        stopped: finished(choice.finish_reason.as_deref())?,
        version: answer.weight_version,
    })
}

#[derive(Deserialize)]
struct SglangAnswer {
    meta_info: SglangMeta,
}

#[derive(Deserialize)]
struct SglangMeta {
    finish_reason: Option<SglangFinish>,
    output_token_logprobs: Option<Vec<(f32, u32, Option<String>)>>,
    weight_version: Option<String>,
}

#[derive(Deserialize)]
struct SglangFinish {
    #[serde(rename = "type")]
    kind: String,
}

fn read_sglang(bytes: &[u8]) -> Result<Answer, String> {
    let answer: SglangAnswer = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let meta = answer.meta_info;
    let tokens = meta
        .output_token_logprobs
        .ok_or("the answer has no `output_token_logprobs`")?;
    let (log_probs, token_ids) = tokens.into_iter().map(|(log_prob, id, _)| (log_prob, id)).unzip();
    Ok(Answer {
        token_ids,
        log_probs,
        stopped: finished(meta.finish_reason.as_ref().map(|finish| finish.kind.as_str()))?,
        version: meta.weight_version,
    })
}

/// Whether a stop token ended a response.
fn finished(reason: Option<&str>) -> Result<bool, String> {
    match reason {
        Some("stop") => Ok(true),
        Some("length") => Ok(false),
        Some(other) => Err(format!("the response ended by `{other}`")),
        None => Err("the answer does not say why the response ended".to_owned()),
    }
}

/// What holds of every answer that may be trained on.
fn check(ask: &Ask, answer: &Answer) -> Result<(), String> {
    let (tokens, log_probs) = (answer.token_ids.len(), answer.log_probs.len());
    if tokens != log_probs {
        return Err(format!("there are {tokens} ids and {log_probs} log-probs"));
    }
    if tokens == 0 || tokens > ask.max_new_tokens {
        return Err(format!(
            "there are {tokens} ids where 1 to {} were asked for",
            ask.max_new_tokens
        ));
    }
    let known = |id: &&u32| (**id as usize) < ask.vocabulary_size;
    if let Some(id) = answer.token_ids.iter().find(|id| !known(id)) {
        return Err(format!("id {id} is not in the policy's vocabulary"));
    }
    // Rounding may put a certain token a little above zero.
    if let Some(value) = answer
        .log_probs
        .iter()
        .find(|value| !(value.is_finite() && **value < 1e-3))
    {
        return Err(format!("a log-prob is {value}"));
    }
    let stop = answer.token_ids.iter().position(|id| ask.stop.contains(id));
    match (stop, answer.stopped) {
        (Some(at), _) if at + 1 < tokens => Err(format!("the response goes on after the end token at {at}")),
        (None, true) => Err("the response ended by `stop` and has no end token at its end".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
