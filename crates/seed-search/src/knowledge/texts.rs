//! The passages of a knowledge world: facts in sentences that vary.
//!
//! Not for: questions; their wording shares little with the sentences', so that words alone do not match them.

use seed_random::{Draw, RandomKey};

use super::draw::{Facts, Person, Town, Work};
use crate::retriever::Passage;

const GOODS: [&str; 10] = [
    "glass", "lace", "cheese", "clocks", "cider", "pottery", "salt", "carpets", "honey", "bells",
];
const QUALITIES: [&str; 8] = [
    "wit",
    "restraint",
    "melancholy",
    "daring",
    "clarity",
    "humour",
    "grandeur",
    "tenderness",
];
const COINS: [&str; 6] = ["crown", "florin", "talent", "mark", "ducat", "shilling"];

/// One passage for everything that has a name, in a shuffled order; ids are positions in it.
pub(super) fn passages(facts: &Facts, key: &RandomKey) -> Vec<Passage> {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for name in &facts.countries {
        entries.push((name, country(name, &key.with_text("country", name))));
    }
    for place in &facts.towns {
        entries.push((
            &place.name,
            town(facts, place, &key.with_text("town", &place.name)),
        ));
    }
    for someone in &facts.people {
        entries.push((
            &someone.name,
            person(facts, someone, &key.with_text("person", &someone.name)),
        ));
    }
    for piece in &facts.works {
        entries.push((
            &piece.title,
            work(facts, piece, &key.with_text("work", &piece.title)),
        ));
    }
    key.with_text("part", "order").generator().shuffle(&mut entries);
    entries
        .into_iter()
        .enumerate()
        .map(|(index, (title, text))| Passage {
            id: index.to_string(),
            contents: format!("\"{title}\"\n{text}"),
        })
        .collect()
}

/// One of several sentences.
fn one_of<const N: usize>(random: &mut impl Draw, sentences: &[String; N]) -> String {
    random.choose(sentences).cloned().unwrap_or_default()
}

fn word<'a>(random: &mut impl Draw, words: &[&'a str]) -> &'a str {
    random.choose(words).copied().unwrap_or_default()
}

fn country(name: &str, key: &RandomKey) -> String {
    let mut random = key.generator();
    let (people, coin) = (2 + random.below(60), word(&mut random, &COINS));
    one_of(
        &mut random,
        &[
            format!("{name} is a country of {people} million people. It pays with the {coin}."),
            format!("About {people} million people live in {name}, whose currency is the {coin}."),
            format!("The {coin} is the money of {name}, a state with {people} million inhabitants."),
        ],
    )
}

fn town(facts: &Facts, town: &Town, key: &RandomKey) -> String {
    let mut random = key.generator();
    let name = &town.name;
    let country = facts.countries.get(town.country).map_or("", String::as_str);
    let place = one_of(
        &mut random,
        &[
            format!("{name} is a town in {country}."),
            format!("{name} lies among the hills of {country}."),
            format!("Travellers through {country} seldom miss the old streets of {name}."),
            format!("The town of {name} belongs to {country}."),
        ],
    );
    let goods = word(&mut random, &GOODS);
    let trade = one_of(
        &mut random,
        &[
            format!("It is known for its {goods}."),
            format!("Its {goods} is sold at a yearly fair."),
            format!("Many there live by making {goods}."),
        ],
    );
    format!("{place} {trade}")
}

fn person(facts: &Facts, person: &Person, key: &RandomKey) -> String {
    let mut random = key.generator();
    let (name, year, maker) = (&person.name, person.birth_year, person.craft.maker());
    let surname = name.rsplit(' ').next().unwrap_or(name);
    let town = facts.towns.get(person.birthplace).map_or("", |town| &town.name);
    let mut text = one_of(
        &mut random,
        &[
            format!("{name} was a {maker} who was born in {town} in {year}."),
            format!("Born in {year} in {town}, {name} became a {maker}."),
            format!("A native of {town}, the {maker} {name} came into the world in {year}."),
            format!("{name} ({town}, {year}) made a living as a {maker}."),
        ],
    );
    if let Some(teacher) = person.teacher.and_then(|teacher| facts.people.get(teacher)) {
        let teacher = &teacher.name;
        text.push(' ');
        text.push_str(&one_of(
            &mut random,
            &[
                format!("{surname} studied under {teacher}."),
                format!("It was {teacher} who taught {surname} the craft."),
                format!("For years {surname} was a pupil of {teacher}."),
                format!("{surname} learned everything in the school of {teacher}."),
            ],
        ));
    }
    text.push(' ');
    text.push_str(&one_of(
        &mut random,
        &[
            format!("{surname} never married."),
            format!("Letters of {name} survive in two archives."),
            format!("{surname} died a rich {maker}."),
        ],
    ));
    text
}

fn work(facts: &Facts, work: &Work, key: &RandomKey) -> String {
    let mut random = key.generator();
    let (title, year) = (&work.title, work.year);
    let Some(creator) = facts.people.get(work.creator) else {
        return String::new();
    };
    let (name, kind, made) = (&creator.name, creator.craft.work(), creator.craft.made());
    let origin = one_of(
        &mut random,
        &[
            format!("{title} is {} {kind} by {name} from {year}.", article(kind)),
            format!("The {kind} {title} was finished in {year}; it comes from the hand of {name}."),
            format!(
                "In {year} {name} {made} {title}, {} {kind} in three parts.",
                article(kind)
            ),
            format!("Shown first in {year}, {title} remains the best known {kind} of {name}."),
        ],
    );
    let quality = word(&mut random, &QUALITIES);
    let praise = one_of(
        &mut random,
        &[
            format!("Critics praised its {quality}."),
            format!("Its {quality} was not to everyone's taste."),
            format!("Few works of its time have such {quality}."),
        ],
    );
    format!("{origin} {praise}")
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    }
}
