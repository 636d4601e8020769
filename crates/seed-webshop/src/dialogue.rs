//! How an episode is shown to a language model, and a page to people.
//!
//! [`WebshopStyle::Full`] follows the layout of the reference's WebShop templates (role, task, history, observation,
//! actions possible now, closing instruction), in our words, for pre-trained language models.
//! [`WebshopStyle::Compact`] spends as few tokens as it can, for a small policy trained on this phrasing.
//!
//! Not for: the pages themselves, or placing a skill in a prompt; a skill finds its place by the line that states the
//! task.

use std::borrow::Cow;

use seed_env::{Dialogue, Projection, PromptState, project_tagged_action, task_line};

use crate::session::SEPARATOR;

/// How many characters of an untagged response become the action (the reference's WebShop wrapper).
const FALLBACK_CHARACTERS: usize = 20;

/// A longer prompt drops its history, as in the reference.
const MOST_CHARACTERS: usize = 13_000;

const ROLE: &str = "You act as an expert agent inside the online shop of WebShop.";

const TRANSCRIPT_RULE: &str =
    "Every message shows the page you are on; answer each one with exactly one action.";

const CLOSING: &str = "Now it's your turn to act. Work through the situation step by step first, between <think> and \
</think>. When the reasoning is done, pick one action that is possible now and write it between <action> and \
</action>.";

/// How much a prompt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebshopStyle {
    /// The reference's layout, for pre-trained language models.
    Full,
    /// The fewest tokens, for a small policy trained on this phrasing.
    Compact,
}

/// Prompts and projection of a shop.
#[derive(Clone, Debug)]
pub struct WebshopDialogue {
    style: WebshopStyle,
}

impl WebshopDialogue {
    /// The dialogue of a style. A `transcript` episode lists the possible actions at every turn in the full style and
    /// never in the compact one, whose pages show them; a `windowed` prompt always lists them.
    pub fn new(style: WebshopStyle) -> Self {
        Self { style }
    }
}

impl Dialogue for WebshopDialogue {
    fn windowed_prompt(&self, state: &PromptState<'_>) -> String {
        match self.style {
            WebshopStyle::Full => full_windowed(state),
            WebshopStyle::Compact => compact_windowed(state),
        }
    }

    fn transcript_opening(&self, state: &PromptState<'_>) -> String {
        match self.style {
            WebshopStyle::Full => format!(
                "{TRANSCRIPT_RULE}\n{ROLE}\n{}\n{}\n\n{CLOSING}",
                task_line(state.task_description),
                full_page(state)
            ),
            WebshopStyle::Compact => format!(
                "{}\n{}",
                task_line(state.task_description),
                compact_page(state.observation)
            ),
        }
    }

    fn transcript_turn(&self, state: &PromptState<'_>) -> String {
        match self.style {
            WebshopStyle::Full => full_page(state),
            WebshopStyle::Compact => compact_page(state.observation).into_owned(),
        }
    }

    fn condense<'a>(&self, observation: &'a str) -> Cow<'a, str> {
        match self.style {
            WebshopStyle::Full => Cow::Borrowed(observation),
            WebshopStyle::Compact => compact_page(observation),
        }
    }

    fn project(&self, response: &str) -> Projection {
        project_tagged_action(response, FALLBACK_CHARACTERS)
    }
}

fn full_page(state: &PromptState<'_>) -> String {
    let quoted: Vec<String> = state
        .admissible_actions
        .iter()
        .map(|action| format!("'{action}'"))
        .collect();
    format!(
        "You observe: {}\nActions you can take now: [{}].",
        state.observation,
        quoted.join(",\n ")
    )
}

fn full_windowed(state: &PromptState<'_>) -> String {
    let head = format!("\n{ROLE}\n{}", task_line(state.task_description));
    let page = full_page(state);
    let plain = format!("{head}\n{page}\n\n{CLOSING}\n");
    if state.history.is_empty() {
        return plain;
    }
    let past = state.past_in_full();
    let prompt = format!(
        "{head}\n{past}\nThis is step {}.\n{page}\n\n{CLOSING}\n",
        state.history.len() + 1
    );
    if prompt.chars().count() > MOST_CHARACTERS {
        return plain;
    }
    prompt
}

fn compact_windowed(state: &PromptState<'_>) -> String {
    format!(
        "{}{}\n{}\nActions: {}",
        task_line(state.task_description),
        state.past_in_short(compact_page),
        compact_page(state.observation),
        state.admissible_actions.join(", ")
    )
}

/// A page in few words: its texts without quotes and separators, without the buttons that every such page has. The page
/// after a purchase becomes the purchase and its score. Text of any other form is kept as it is.
fn compact_page(observation: &str) -> Cow<'_, str> {
    let Some(texts) = quoted_texts(observation) else {
        return purchase(observation).map_or(Cow::Borrowed(observation), Cow::Owned);
    };
    let kept: Vec<&str> = texts
        .filter(|text| {
            !matches!(
                *text,
                "Back to Search"
                    | "< Prev"
                    | "Next >"
                    | "Rating: N.A."
                    | "Description"
                    | "Features"
                    | "Reviews"
                    | "Buy Now"
            )
        })
        .collect();
    Cow::Owned(kept.join(" | "))
}

/// A page as people read it: a text a line, a product of a list with title and price on one, and the page after a
/// purchase as the purchase and its score. `wish` and what stands before it are left out. The texts of `page` may be in
/// quotes, as an environment shows them, or not, as in [`PlayedVisit`](crate::PlayedVisit).
pub fn readable_page(page: &str, wish: &str) -> String {
    if let Some(bought) = purchase(page) {
        return bought;
    }
    let texts: Vec<&str> = match quoted_texts(page) {
        Some(texts) => texts.collect(),
        None => page.split(SEPARATOR).collect(),
    };
    let before = texts.iter().position(|text| *text == wish.trim());
    let mut rest = texts.get(before.map_or(0, |wish| wish + 1)..).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    while let [first, others @ ..] = rest {
        rest = match others {
            // Nothing else on a list begins with a dollar sign.
            [title, price, others @ ..] if price.starts_with('$') => {
                lines.push(format!("{first}  {title}  {price}"));
                others
            }
            others => {
                lines.push((*first).to_owned());
                others
            }
        };
    }
    lines.join("\n")
}

/// The texts of a page that has them in quotes.
fn quoted_texts(page: &str) -> Option<impl Iterator<Item = &str>> {
    Some(page.strip_prefix('\'')?.strip_suffix('\'')?.split("' [SEP] '"))
}

/// What was bought, with which options, and the score.
fn purchase(observation: &str) -> Option<String> {
    let texts: Vec<&str> = observation.split(SEPARATOR).collect();
    let after = |name: &str| {
        let place = texts.iter().position(|text| *text == name)?;
        texts.get(place + 1).copied()
    };
    Some(format!(
        "Bought {} with {}. Score {}",
        after("asin")?,
        after("options")?,
        after("Your score (min 0.0, max 1.0)")?
    ))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use seed_env::Exchange;

    use super::*;

    fn state<'a>(actions: &'a [String], history: &'a [Exchange], observation: &'a str) -> PromptState<'a> {
        PromptState {
            task_description: "i need a blue tea pot, and price lower than 30.00 dollars",
            observation,
            admissible_actions: actions,
            history,
            history_length: 2,
        }
    }

    fn actions(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn history() -> Vec<Exchange> {
        vec![
            Exchange {
                observation: "'Search'".to_owned(),
                action: "search[tea pot]".to_owned(),
            },
            Exchange {
                observation: "'Back to Search' [SEP] 'Page 1 (Total results: 1)' [SEP] 'Next >' [SEP] 'B01' [SEP] 'Tea \
                              Pot' [SEP] '$20.0'"
                    .to_owned(),
                action: "click[b01]".to_owned(),
            },
        ]
    }

    const ITEM: &str = "'Back to Search' [SEP] '< Prev' [SEP] 'color' [SEP] 'blue' [SEP] 'Tea Pot' [SEP] 'Price: $20.0' \
                        [SEP] 'Rating: N.A.' [SEP] 'Description' [SEP] 'Features' [SEP] 'Reviews' [SEP] 'Buy Now'";

    #[test]
    fn full_prompts_follow_the_references_layout() {
        let dialogue = WebshopDialogue::new(WebshopStyle::Full);
        let first = actions(&["search[<your query>]", "click[search]"]);
        assert_snapshot!(dialogue.windowed_prompt(&state(&first, &[], "'Search'")));
        let later = actions(&["click[back to search]", "click[blue]"]);
        assert_snapshot!(dialogue.windowed_prompt(&state(&later, &history(), ITEM)));
        assert_snapshot!(dialogue.transcript_opening(&state(&first, &[], "'Search'")));
        assert_snapshot!(dialogue.transcript_turn(&state(&later, &history(), ITEM)));
    }

    #[test]
    fn compact_prompts_keep_what_tells_pages_apart() {
        let dialogue = WebshopDialogue::new(WebshopStyle::Compact);
        let later = actions(&["click[back to search]", "click[blue]"]);
        assert_snapshot!(dialogue.windowed_prompt(&state(&later, &history(), ITEM)));
        assert_snapshot!(dialogue.transcript_opening(&state(&[], &[], "'Search'")));
        let done = "Thank you for shopping with us! [SEP] Purchased [SEP] asin [SEP] B01 [SEP] options [SEP] {\"color\": \
                    \"blue\"} [SEP] attrs [SEP] Target [SEP] asin [SEP] Your score (min 0.0, max 1.0) [SEP] 1.0 [SEP] \
                    Reward Details [SEP] None";
        assert_snapshot!(dialogue.condense(done));
    }

    #[test]
    fn people_read_a_text_a_line() {
        let list = &history()[1].observation;
        let read = "Back to Search\nPage 1 (Total results: 1)\nNext >\nB01  Tea Pot  $20.0";
        assert_eq!(readable_page(list, "a tea pot"), read);
        let plain = format!("Instruction: [SEP] a tea pot [SEP] {}", list.replace('\'', ""));
        assert_eq!(readable_page(&plain, "a tea pot "), read);
        assert_eq!(
            readable_page("Nothing here's quoted.", "a tea pot"),
            "Nothing here's quoted."
        );
        let bought = "Thank you for shopping with us! [SEP] asin [SEP] B01 [SEP] options [SEP] {} [SEP] Your score \
                      (min 0.0, max 1.0) [SEP] 0.5";
        assert_eq!(
            readable_page(bought, "a tea pot"),
            "Bought B01 with {}. Score 0.5"
        );
    }

    #[test]
    fn a_history_that_is_too_long_is_dropped() {
        let dialogue = WebshopDialogue::new(WebshopStyle::Full);
        let actions = actions(&["click[blue]"]);
        let mut history = history();
        let plain = dialogue.windowed_prompt(&state(&actions, &[], ITEM));
        assert_ne!(dialogue.windowed_prompt(&state(&actions, &history, ITEM)), plain);
        history[1].observation = "é".repeat(13_000);
        assert_eq!(dialogue.windowed_prompt(&state(&actions, &history, ITEM)), plain);
    }

    #[test]
    fn an_untagged_response_gives_its_last_twenty_characters() {
        let dialogue = WebshopDialogue::new(WebshopStyle::Full);
        let projection = dialogue.project("I would now do click[Buy Now]");
        assert_eq!(
            (projection.action.as_str(), projection.valid),
            ("ow do click[buy now]", false)
        );
    }
}
