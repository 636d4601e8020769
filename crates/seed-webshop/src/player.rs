//! Scripted shoppers: yardsticks, and players of demonstrations.
//!
//! Not for: the rules, or policies that learn.

use seed_random::{Draw, RandomKey};

use crate::session::Place;
use crate::{Goal, OptionGroup, Purchase, Session, Shop};

/// Pages of results that a shopper looks through before another search.
const PAGES_READ: usize = 5;

/// What a shopper knows and how often it errs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shopper {
    /// Knows the wanted product and its options; never errs.
    Oracle,
    /// As the oracle, but errs with this probability at each step: it clicks anything, buys early, or searches with half of
    /// the words.
    Noisy(f64),
    /// Clicks anything, searches with words of the instruction.
    Random,
}

/// One step of a played episode.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedStep {
    /// The page acted on, its texts joined as in the original.
    pub observation: String,
    /// The action.
    pub action: String,
}

/// A played episode.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedVisit {
    /// Steps in order.
    pub steps: Vec<PlayedStep>,
    /// The page after the last action.
    pub last_observation: String,
    /// What was bought, if anything.
    pub purchase: Option<Purchase>,
}

/// Plays one episode of at most `max_steps` steps.
pub fn play(shop: &Shop, goal: &Goal, shopper: Shopper, key: &RandomKey, max_steps: usize) -> PlayedVisit {
    let mut session = Session::new(key.with_text("purpose", "session"));
    let mut draw = key.with_text("purpose", "shopper").generator();
    let shown = |session: &Session| session.texts(shop, goal).join(crate::session::SEPARATOR);
    let mut steps = Vec::new();
    let mut searches = 0;
    while steps.len() < max_steps && session.purchase().is_none() {
        let errs = match shopper {
            Shopper::Oracle => false,
            Shopper::Noisy(share) => draw.chance(share),
            Shopper::Random => true,
        };
        let action = if errs {
            anything(shop, goal, &session, &mut draw)
        } else {
            next_action(shop, goal, &session, searches)
        };
        searches += usize::from(action.starts_with("search["));
        steps.push(PlayedStep {
            observation: shown(&session),
            action: action.clone(),
        });
        session.act(shop, goal, &action);
    }
    PlayedVisit {
        last_observation: shown(&session),
        purchase: session.purchase().cloned(),
        steps,
    }
}

/// A click on anything that does something, or a search with half of the instruction's words.
pub(crate) fn anything(shop: &Shop, goal: &Goal, session: &Session, draw: &mut impl Draw) -> String {
    let clickables = session.clickables(shop);
    if session.has_search_bar() || clickables.is_empty() {
        let words: Vec<&str> = goal
            .instruction
            .split_whitespace()
            .filter(|_| draw.chance(0.5))
            .collect();
        return format!("search[{}]", words.join(" "));
    }
    draw.choose(&clickables)
        .map_or_else(String::new, |text| format!("click[{text}]"))
}

/// What leads towards the wanted product, bought with the wanted options.
fn next_action(shop: &Shop, goal: &Goal, session: &Session, searches: usize) -> String {
    let wanted = shop.catalogue().product(goal.product);
    match session.place() {
        Place::Start => {
            // First in the words of the task, then by title, which finds the product itself.
            let words = match (searches, wanted) {
                (1.., Some(product)) => product.title.as_str(),
                _ => without_price(&goal.instruction),
            };
            // Brackets would end the argument early.
            format!("search[{}]", words.replace(['[', ']'], " ").to_lowercase())
        }
        Place::Results { page, shown, more } => {
            if let Some(product) =
                wanted.filter(|_| shown.iter().any(|&place| place as usize == goal.product))
            {
                return format!("click[{}]", product.asin.to_lowercase());
            }
            if more && page < PAGES_READ {
                "click[next >]".to_owned()
            } else {
                "click[back to search]".to_owned()
            }
        }
        Place::Item { product, chosen } if product == goal.product => {
            let offered = wanted.map_or(&[] as &[_], |product| &product.options);
            match missing_option(goal, offered, chosen) {
                Some(value) => format!("click[{value}]"),
                None => "click[buy now]".to_owned(),
            }
        }
        Place::Item { .. } | Place::Details => "click[< prev]".to_owned(),
        Place::Done => String::new(),
    }
}

/// A value asked for that the product offers and that is not chosen yet. People ask for some that it does not offer.
fn missing_option<'a>(
    goal: &'a Goal,
    offered: &[OptionGroup],
    chosen: &[(String, String)],
) -> Option<&'a str> {
    goal.options
        .values()
        .find(|&value| chosen.iter().all(|(_, other)| other != value) && offers(offered, value))
}

/// Whether a group of options has a value.
pub(crate) fn offers(groups: &[OptionGroup], value: &str) -> bool {
    groups
        .iter()
        .any(|group| group.values.iter().any(|other| other == value))
}

/// The instruction without the price cap at its end, which finds nothing.
fn without_price(instruction: &str) -> &str {
    instruction
        .rsplit_once(", and price lower than ")
        .map_or(instruction, |(before, _)| before)
}
