//! Tests of examining models, on small random ones with one thing wrong.

use seed_model::{CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Family, RopeScaling, train_byte_level_bpe};

use super::*;
use crate::Level;

fn model(template: Option<&str>, end_tokens: Vec<u32>) -> ModelDirectory {
    let config = DecoderConfig {
        family: Family::Qwen3,
        vocabulary_size: 300,
        hidden_size: 16,
        intermediate_size: 24,
        layers: 1,
        query_heads: 2,
        key_value_heads: 1,
        head_dim: 8,
        rms_norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: RopeScaling::None,
        max_positions: 128,
        tied_embeddings: true,
        attention_bias: false,
        query_key_norm: true,
        initializer_range: 0.2,
        begin_token: None,
        end_tokens,
    };
    let parameters = Parameters::initialise(&config, RandomKey::new(1));
    let tokenizer = train_byte_level_bpe(["again and again"; 2], 290, &CHATML_TOKENS).unwrap();
    let chat = template.map(|template| ChatTemplate::new(template, &tokenizer).unwrap());
    ModelDirectory::new(config, parameters, tokenizer, chat).unwrap()
}

/// The findings that are not fine, or all, each on a line.
fn shown(findings: &[Finding], all: bool) -> String {
    let lines: Vec<String> = findings
        .iter()
        .filter(|finding| all || finding.level > Level::Fine)
        .map(|finding| {
            assert_eq!(
                finding.remedy.is_none(),
                finding.level == Level::Fine,
                "{finding:?}"
            );
            format!("{:?}: {}", finding.level, finding.text)
        })
        .collect();
    lines.join("\n")
}

#[test]
fn a_sound_model_has_nothing_wrong() {
    let findings = examine_model(model(Some(CHATML_TEMPLATE), vec![1]), None);
    insta::assert_snapshot!(shown(&findings, true), @r"
    Fine: qwen3: 6784 parameters, 26.5 KiB in f32; context of 128 tokens
    Fine: input and output embeddings are one tensor (tied)
    Fine: the tokenizer has 267 of the model's 300 ids; 33 are padding
    Fine: texts come back from the tokenizer as they were
    Fine: responses end with `<|im_end|>` (1)
    Fine: the template ends the model's turn with `<|im_end|>` (1)
    Fine: the template only ever appends: a later prompt begins with the earlier one
    Fine: text cannot become any of the 3 control tokens
    Fine: it generates, and scoring gives the log-probs of generating to the last bit
    ");
}

#[test]
fn what_is_wrong_is_found() {
    let findings = examine_model(model(None, vec![]), None);
    insta::assert_snapshot!(shown(&findings, false), @r"
    Wrong: no token ends a response: every one would go on to its greatest length
    Wrong: there is no chat template, which playing, fine-tuning and chats need
    ");
}

/// A template in Qwen3's manner, which takes `<think>` blocks out of the history (a later prompt does not begin with the
/// earlier one).
#[test]
fn a_template_that_changes_history_is_told() {
    let template = "{%- for message in messages -%}<|im_start|>{{ message.role }}{{ '\\n' }}\
        {{- message.content.split('</think>')[-1].lstrip('\\n') }}<|im_end|>{{ '\\n' }}{%- endfor -%}\
        {%- if add_generation_prompt -%}<|im_start|>assistant{{ '\\n' }}{%- endif -%}";
    let findings = examine_model(model(Some(template), vec![1]), None);
    insta::assert_snapshot!(shown(&findings, false), @"Warning: the template changes history: `<think>` blocks are removed from the history");
}

/// The end marker lies in the next turn's header: the model has to write it.
#[test]
fn a_turn_ended_by_the_next_one_is_told() {
    let template = "{%- for message in messages -%}<|im_start|>{{ message.role }}{{ '\\n' }}{{ message.content }}\
        {%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant{{ '\\n' }}{%- endif -%}";
    let findings = examine_model(model(Some(template), vec![1]), None);
    insta::assert_snapshot!(shown(&findings, false), @"Warning: the model's turn is ended by `<|im_start|>` (0), which begins the next turn");
}

/// A template that shows only the last message.
#[test]
fn a_template_without_turns_is_wrong() {
    let template = "{{ messages[-1].content }}<|im_end|>";
    let findings = examine_model(model(Some(template), vec![1]), None);
    insta::assert_snapshot!(shown(&findings, false), @"Wrong: chat template: it leaves out a message or changes the order; conversations of this model cannot be built turn by turn");
}

#[test]
fn weights_that_have_diverged_are_wrong() {
    let mut directory = model(Some(CHATML_TEMPLATE), vec![1]);
    let index = directory.parameters.index_of("model.norm.weight").unwrap();
    directory.parameters.get_mut(index).fill(f32::INFINITY);
    let findings = examine_model(directory, None);
    assert_eq!(findings.last().unwrap().level, Level::Wrong);
    assert!(findings.last().unwrap().text.contains("not finite"));
}
