//! Drawing what there is: countries, towns, people, works, and what holds between them.
//!
//! Not for: words ([`super::texts`]) or questions ([`super::questions`]).

use std::collections::BTreeSet;

use seed_random::{Draw, RandomKey};

use super::names;

const COUNTRIES: usize = 20;
/// Countries from here on are held out.
const FIRST_HELD_OUT: usize = 16;
const TOWNS_PER_COUNTRY: usize = 5;
/// People born in each town. Each has one or two works, 1,200 at most, for which there are 1,600 titles.
const PEOPLE_PER_TOWN: usize = 6;

/// What a knowledge world is drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnowledgeConfig {
    /// From what everything is drawn. Another seed is another world, with its own name.
    pub seed: u64,
    /// Number of training questions.
    pub train: usize,
    /// Number of questions for choosing hyper-parameters.
    pub development: usize,
    /// Number of evaluation questions about what is trained on.
    pub seen: usize,
    /// Number of evaluation questions about what is held out.
    pub unseen: usize,
}

impl KnowledgeConfig {
    /// The usual world of a seed: 4,096 training, 256 development, 128 seen and 128 unseen questions.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            train: 4_096,
            development: 256,
            seen: 128,
            unseen: 128,
        }
    }

    /// The world's name: `knowledge`, with the seed when it is not 0.
    pub fn name(&self) -> String {
        match self.seed {
            0 => "knowledge".to_owned(),
            seed => format!("knowledge-{seed}"),
        }
    }
}

/// What a person does, and makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Craft {
    Novelist,
    Composer,
    Painter,
    Director,
}

impl Craft {
    const ALL: [Self; 4] = [Self::Novelist, Self::Composer, Self::Painter, Self::Director];

    pub(super) fn maker(self) -> &'static str {
        match self {
            Self::Novelist => "novelist",
            Self::Composer => "composer",
            Self::Painter => "painter",
            Self::Director => "director",
        }
    }

    pub(super) fn work(self) -> &'static str {
        match self {
            Self::Novelist => "novel",
            Self::Composer => "opera",
            Self::Painter => "painting",
            Self::Director => "film",
        }
    }

    /// What a maker did, between maker and work.
    pub(super) fn made(self) -> &'static str {
        match self {
            Self::Novelist => "wrote",
            Self::Composer => "composed",
            Self::Painter => "painted",
            Self::Director => "directed",
        }
    }
}

/// A town; positions refer to the lists of [`Facts`].
#[derive(Debug)]
pub(super) struct Town {
    pub(super) name: String,
    pub(super) country: usize,
}

/// A person.
#[derive(Debug)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) craft: Craft,
    pub(super) birthplace: usize,
    pub(super) birth_year: u32,
    /// Born earlier, of the same craft, and on the same side of what is held out.
    pub(super) teacher: Option<usize>,
}

/// A work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) title: String,
    pub(super) creator: usize,
    pub(super) year: u32,
}

/// All that is true in a world.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) countries: Vec<String>,
    pub(super) towns: Vec<Town>,
    pub(super) people: Vec<Person>,
    pub(super) works: Vec<Work>,
}

impl Facts {
    pub(super) fn draw(key: &RandomKey) -> Self {
        let mut random = key.with_text("part", "places").generator();
        let mut taken = BTreeSet::new();
        let countries: Vec<String> = (0..COUNTRIES)
            .map(|_| names::fresh(&mut taken, || names::country(&mut random)))
            .collect();
        let towns: Vec<Town> = (0..COUNTRIES * TOWNS_PER_COUNTRY)
            .map(|index| Town {
                name: names::fresh(&mut taken, || names::town(&mut random)),
                country: index / TOWNS_PER_COUNTRY,
            })
            .collect();
        let mut random = key.with_text("part", "people").generator();
        let mut people: Vec<Person> = (0..towns.len() * PEOPLE_PER_TOWN)
            .map(|index| Person {
                name: names::fresh(&mut taken, || names::person(&mut random)),
                craft: random.choose(&Craft::ALL).copied().unwrap_or(Craft::Novelist),
                birthplace: index / PEOPLE_PER_TOWN,
                birth_year: 1700 + random.below(200) as u32,
                teacher: None,
            })
            .collect();
        let mut facts = Self {
            countries,
            towns,
            people: Vec::new(),
            works: Vec::new(),
        };
        let mut random = key.with_text("part", "teachers").generator();
        let teachers: Vec<Option<usize>> = people
            .iter()
            .map(|person| {
                let older: Vec<usize> = people
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| {
                        other.craft == person.craft
                            && (20..70).contains(&person.birth_year.saturating_sub(other.birth_year))
                            && facts.held_out_town(other.birthplace) == facts.held_out_town(person.birthplace)
                    })
                    .map(|(index, _)| index)
                    .collect();
                random.choose(&older).copied()
            })
            .collect();
        for (person, teacher) in people.iter_mut().zip(teachers) {
            person.teacher = teacher;
        }
        let mut random = key.with_text("part", "works").generator();
        for (creator, person) in people.iter().enumerate() {
            for _ in 0..=random.below(2) {
                facts.works.push(Work {
                    title: names::fresh(&mut taken, || names::title(&mut random)),
                    creator,
                    year: person.birth_year + 20 + random.below(50) as u32,
                });
            }
        }
        facts.people = people;
        facts
    }

    pub(super) fn held_out_town(&self, town: usize) -> bool {
        self.towns
            .get(town)
            .is_some_and(|town| town.country >= FIRST_HELD_OUT)
    }

    pub(super) fn held_out_person(&self, person: usize) -> bool {
        self.people
            .get(person)
            .is_some_and(|person| self.held_out_town(person.birthplace))
    }
}
