//! A scripted player of the knowledge world, and the skill it writes by rule about a finished episode.
//!
//! The player knows which searches lead to an answer and says at each step what it is after; at a chosen rate it errs. Its
//! skills say how a kind of question is answered, never the answer. Sentences are regular, so that a small policy can
//! learn to write and to follow them.
//!
//! Not for: policies that learn.

use seed_env::{EnvironmentError, TaskId, World};
use seed_random::{Draw, RandomKey};

use super::questions::{Plan, QuestionKind, answer_action, search_action};
use super::world::KnowledgeWorld;

/// One step of a played episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedTurn {
    /// What was seen before the action.
    pub observation: String,
    /// What the player was after, such as `the birthplace`.
    pub intention: String,
    /// The action: one search or answer block.
    pub action: String,
}

/// A finished episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayedQuestion {
    /// The question.
    pub question: String,
    /// All steps in order.
    pub turns: Vec<PlayedTurn>,
    /// Whether the answer was right.
    pub won: bool,
    /// One sentence on what happened.
    pub summary: String,
    /// One to three sentences on how such a question is answered.
    pub skill: String,
}

/// A player that errs with probability `noise` at each step: it searches for half a name, answers with something it has
/// read before it knows, or answers with something else than was asked for.
///
/// # Errors
/// [`EnvironmentError::UnknownTask`] for a task that is none of the world's.
pub fn play_knowledge(
    world: &KnowledgeWorld,
    task: &TaskId,
    noise: f64,
    key: &RandomKey,
) -> Result<PlayedQuestion, EnvironmentError> {
    let plan = world.plan(task).ok_or_else(|| EnvironmentError::UnknownTask {
        task: task.clone(),
        world: world.name().to_owned(),
    })?;
    let mut draw = key
        .with_text("purpose", "player of the knowledge world")
        .generator();
    let mut environment = world.environment();
    let question = environment.reset(task, 0)?.text;
    let mut observation = question.clone();
    let mut turns: Vec<PlayedTurn> = Vec::new();
    let (mut found, mut won) = (0, false);
    let max_turns = world.default_max_steps();
    while turns.len() < max_turns {
        let errs = draw.chance(noise);
        // A search in the last turn would not be executed.
        let must_answer = turns.len() + 1 == max_turns;
        let hop = found;
        let action = match plan.queries.get(hop) {
            Some(query) if !errs && !must_answer => {
                found += 1;
                Action::Search(query.clone())
            }
            Some(query) if !must_answer && draw.chance(0.5) => Action::Search(half(query, &mut draw)),
            None if !errs => Action::Answer(plan.answer.clone()),
            _ => Action::Answer(guess(plan, found, &observation, &mut draw)),
        };
        let wanted = match &action {
            Action::Search(_) => plan.kind.relation(hop),
            Action::Answer(_) => plan.kind.relation(plan.kind.hops()),
        };
        let text = match &action {
            Action::Search(query) => search_action(query),
            Action::Answer(answer) => answer_action(answer),
        };
        let transition = environment.step(&text)?;
        turns.push(PlayedTurn {
            observation: std::mem::replace(&mut observation, transition.observation.text),
            intention: format!("the {wanted}"),
            action: text,
        });
        if transition.terminated || transition.truncated {
            won = transition.won;
            break;
        }
    }
    let searches = turns.len().saturating_sub(1);
    Ok(PlayedQuestion {
        question,
        won,
        summary: format!(
            "The answer was {} after {searches} search{}.",
            if won { "right" } else { "wrong" },
            if searches == 1 { "" } else { "es" }
        ),
        skill: skill(plan.kind, won, searches, found),
        turns,
    })
}

enum Action {
    Search(String),
    Answer(String),
}

/// The first or the last word of a name.
fn half(name: &str, draw: &mut impl Draw) -> String {
    let words: Vec<&str> = name.split_whitespace().collect();
    let word = if draw.chance(0.5) {
        words.first()
    } else {
        words.last()
    };
    word.copied().unwrap_or(name).to_owned()
}

/// Something that was read and is not the answer: the name reached so far, or a year or name from the last result.
fn guess(plan: &Plan, found: usize, observation: &str, draw: &mut impl Draw) -> String {
    let reached = plan.queries.get(found.min(plan.queries.len().saturating_sub(1)));
    let mut choices: Vec<String> = names_and_years(observation);
    // What was reached is what people take for the answer most often.
    choices.extend(
        std::iter::repeat_n(reached, 1 + choices.len() / 2)
            .flatten()
            .cloned(),
    );
    choices.retain(|choice| *choice != plan.answer);
    draw.choose(&choices).cloned().unwrap_or_default()
}

/// Runs of capitalised words, and years, in order.
fn names_and_years(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split(|character: char| !character.is_alphanumeric()) {
        let is_year = word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = word.len() > 1 && word.starts_with(|first: char| first.is_uppercase()) && word != "Doc";
        match names.last_mut() {
            Some(name) if is_name && is_open => {
                name.push(' ');
                name.push_str(word);
            }
            _ if is_name || is_year => names.push(word.to_owned()),
            _ => {}
        }
        is_open = is_name;
    }
    names
}

/// What such a question needs, and after a failure what went wrong.
fn skill(kind: QuestionKind, won: bool, searches: usize, found: usize) -> String {
    let (subject, wanted) = (kind.subject(), kind.relation(kind.hops()));
    let mut text = if kind.hops() == 1 {
        format!("Search for the {subject} by name. Answer with the {wanted}.")
    } else {
        format!(
            "Search for the {subject} by name to learn the {}. Then search for that name. Answer with the {wanted}.",
            kind.relation(0)
        )
    };
    if !won {
        let warning = match (searches, found) {
            (0, _) => "Do not answer before a search.".to_owned(),
            (_, 0) => "Use the whole name.".to_owned(),
            (_, found) if found < kind.hops() => "One search is not enough.".to_owned(),
            _ => format!("Nothing but the {wanted} is asked for."),
        };
        text.push(' ');
        text.push_str(&warning);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KnowledgeConfig, SearchDialect, SearchOptions, SearchStyle};
    use seed_env::Split;

    fn world() -> KnowledgeWorld {
        let options = SearchOptions {
            top_k: 1,
            style: SearchStyle::Compact,
            ..SearchOptions::new(SearchDialect::VerlAgent)
        };
        KnowledgeWorld::new(&KnowledgeConfig::new(0), options).unwrap()
    }

    #[test]
    fn without_mistakes_every_question_is_answered_in_as_many_turns_as_it_needs() {
        let world = world();
        for split in Split::ALL {
            for task in world.tasks(split) {
                let played = play_knowledge(&world, &task.id, 0.0, &RandomKey::new(0)).unwrap();
                let hops = world.plan(&task.id).unwrap().kind.hops();
                assert!(played.won, "{}", task.id);
                assert_eq!(played.turns.len(), hops + 1, "{}", task.id);
                // What each search finds tells the next step, also when one passage is shown.
                let plan = world.plan(&task.id).unwrap();
                let told = plan.queries.iter().skip(1).chain([&plan.answer]);
                for (turn, next) in played.turns.iter().skip(1).zip(told) {
                    assert!(
                        turn.observation.contains(next),
                        "{}: {}",
                        task.id,
                        turn.observation
                    );
                }
            }
        }
    }

    #[test]
    fn mistakes_cost_answers_and_are_named() {
        let world = world();
        let tasks = &world.tasks(Split::Train)[..400];
        let play = |noise: f64| -> Vec<PlayedQuestion> {
            let key = RandomKey::new(3);
            tasks
                .iter()
                .enumerate()
                .map(|(index, task)| {
                    play_knowledge(&world, &task.id, noise, &key.with("task", index as u64)).unwrap()
                })
                .collect()
        };
        let won = |played: &[PlayedQuestion]| played.iter().filter(|played| played.won).count();
        let (few, many) = (play(0.2), play(0.6));
        assert!((200..330).contains(&won(&few)), "{}", won(&few));
        assert!((20..170).contains(&won(&many)), "{}", won(&many));
        assert_eq!(play(0.6), many, "the key decides");
        for warning in [
            "Do not answer before a search.",
            "Use the whole name.",
            "One search is not enough.",
            "is asked for.",
        ] {
            assert!(
                many.iter()
                    .any(|played| !played.won && played.skill.ends_with(warning)),
                "{warning}"
            );
        }
        assert!(many.iter().all(|played| played.turns.len() <= 4));
    }

    #[test]
    fn a_skill_tells_the_way_and_never_the_answer() {
        let world = world();
        for task in world.tasks(Split::Unseen) {
            let plan = world.plan(&task.id).unwrap();
            let played = play_knowledge(&world, &task.id, 0.3, &RandomKey::new(1)).unwrap();
            assert!(!played.skill.contains(&plan.answer), "{}", played.skill);
        }
        assert_eq!(
            skill(QuestionKind::CreatorTeacher, false, 1, 1),
            "Search for the work by name to learn the creator. Then search for that name. Answer with the teacher. \
             One search is not enough."
        );
    }

    #[test]
    fn names_and_years_of_a_text_are_found() {
        assert_eq!(
            names_and_years("Doc 1: In 1820 Ada Cor (Galenvale) wrote a book; Emil did not."),
            ["In", "1820", "Ada Cor", "Galenvale", "Emil"]
        );
    }
}
