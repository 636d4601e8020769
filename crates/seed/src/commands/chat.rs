//! `seed chat`.

use std::io::{BufRead, IsTerminal, Write};

use seed_model::Sampling;
use seed_run::ExitCode;
use seed_train::chat::{Chat, ChatOptions};
use seed_train::policy::Policy;
use serde_json::json;

use super::set_threads;
use crate::arguments::{self, Output};
use crate::display::{error_line, output_line};
use crate::failure::Outcome;

pub(crate) fn run(command: &arguments::Chat, output: Output) -> Outcome {
    set_threads(command.threads)?;
    let policy = Policy::load(&command.model, command.thinking)?;
    let options = ChatOptions {
        sampling: Sampling {
            temperature: command.temperature,
            top_p: command.top_p,
            ..Sampling::GREEDY
        },
        max_new_tokens: command.max_new_tokens,
        seed: command.seed,
    };
    let mut chat = Chat::new(&policy, options);
    let stdin = std::io::stdin();
    let asks = stdin.is_terminal() && !output.json && !output.quiet;
    if asks {
        error_line(
            "One message a line; an empty line is left out, the end of the input ends the conversation.",
        );
    }
    let mut lines = stdin.lock().lines();
    loop {
        if asks {
            show("> ");
        }
        let Some(line) = lines.next().transpose()? else {
            break;
        };
        if line.trim().is_empty() {
            continue;
        }
        let mut shown = |text: &str| {
            if !output.json {
                show(text);
            }
        };
        let answer = chat.answer(&line, &mut shown)?;
        if output.json {
            output_line(
                &json!({
                    "message": line,
                    "answer": answer.text,
                    "token_ids": answer.token_ids,
                    "finish": answer.finish,
                })
                .to_string(),
            );
        } else {
            output_line("");
        }
    }
    Ok(ExitCode::Success)
}

/// Shows part of a line at once. A reader that has gone away is no error.
fn show(text: &str) {
    let mut out = std::io::stdout();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}
