//! Questions about a knowledge world, and how each is answered by searching.
//!
//! Not for: which questions go to which split ([`super::world`]).

use seed_random::{Draw, RandomKey};

use super::draw::Facts;
use crate::question::Question;

/// What is asked: a relation of one hop, or two relations one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuestionKind {
    /// Where a person was born.
    Birthplace,
    /// When a person was born.
    BirthYear,
    /// Who taught a person.
    Teacher,
    /// Who made a work.
    Creator,
    /// When a work was made.
    WorkYear,
    /// In which country a town lies.
    Country,
    /// Where a work's creator was born.
    CreatorBirthplace,
    /// When a work's creator was born.
    CreatorBirthYear,
    /// In which country a person was born.
    BirthplaceCountry,
    /// When a person's teacher was born.
    TeacherBirthYear,
    /// Who taught a work's creator. Never trained on.
    CreatorTeacher,
    /// Where a person's teacher was born. Never trained on.
    TeacherBirthplace,
}

impl QuestionKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Birthplace,
        Self::BirthYear,
        Self::Teacher,
        Self::Creator,
        Self::WorkYear,
        Self::Country,
        Self::CreatorBirthplace,
        Self::CreatorBirthYear,
        Self::BirthplaceCountry,
        Self::TeacherBirthYear,
        Self::CreatorTeacher,
        Self::TeacherBirthplace,
    ];

    /// The kind's name, which is the questions' data source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Birthplace => "birthplace",
            Self::BirthYear => "birth_year",
            Self::Teacher => "teacher",
            Self::Creator => "creator",
            Self::WorkYear => "work_year",
            Self::Country => "country",
            Self::CreatorBirthplace => "creator_birthplace",
            Self::CreatorBirthYear => "creator_birth_year",
            Self::BirthplaceCountry => "birthplace_country",
            Self::TeacherBirthYear => "teacher_birth_year",
            Self::CreatorTeacher => "creator_teacher",
            Self::TeacherBirthplace => "teacher_birthplace",
        }
    }

    /// Whether the kind never occurs in training.
    pub fn is_held_out(self) -> bool {
        matches!(self, Self::CreatorTeacher | Self::TeacherBirthplace)
    }

    /// Passages that have to be read.
    pub fn hops(self) -> usize {
        self.relations().len()
    }

    /// What the question names.
    pub(super) fn subject(self) -> &'static str {
        match self {
            Self::Country => "town",
            Self::Creator
            | Self::WorkYear
            | Self::CreatorBirthplace
            | Self::CreatorBirthYear
            | Self::CreatorTeacher => "work",
            _ => "person",
        }
    }

    /// What the passage at a hop tells, counted from 0; from the last hop on what is asked for.
    pub(super) fn relation(self, hop: usize) -> &'static str {
        let relations = self.relations();
        let relation = relations.get(hop).or(relations.last());
        // Every kind has a relation.
        relation.copied().unwrap_or_default()
    }

    /// What the passages tell, in the order in which they have to be read; the last is what is asked for.
    fn relations(self) -> &'static [&'static str] {
        match self {
            Self::Birthplace => &["birthplace"],
            Self::BirthYear => &["birth year"],
            Self::Teacher => &["teacher"],
            Self::Creator => &["creator"],
            Self::WorkYear => &["year"],
            Self::Country => &["country"],
            Self::CreatorBirthplace => &["creator", "birthplace"],
            Self::CreatorBirthYear => &["creator", "birth year"],
            Self::BirthplaceCountry => &["birthplace", "country"],
            Self::TeacherBirthYear => &["teacher", "birth year"],
            Self::CreatorTeacher => &["creator", "teacher"],
            Self::TeacherBirthplace => &["teacher", "birthplace"],
        }
    }
}

/// How a question is answered by one who knows the world: what to search for, in order, and what to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is asked.
    pub kind: QuestionKind,
    /// Names whose passages tell the way.
    pub queries: Vec<String>,
    /// The answer.
    pub answer: String,
}

impl Plan {
    /// The actions of a player who knows the world.
    pub fn actions(&self) -> Vec<String> {
        let searches = self.queries.iter().map(|query| search_action(query));
        searches.chain([answer_action(&self.answer)]).collect()
    }
}

/// The action that searches for `query`.
pub(super) fn search_action(query: &str) -> String {
    format!("<search>{query}</search>")
}

/// The action that answers `answer`.
pub(super) fn answer_action(answer: &str) -> String {
    format!("<answer>{answer}</answer>")
}

/// A question with its plan, and whether it is about what is held out.
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) plan: Plan,
    pub(super) held_out: bool,
}

/// All questions of a kind, in the order of their subjects.
pub(super) fn questions(facts: &Facts, kind: QuestionKind, key: &RandomKey) -> Vec<Asked> {
    let key = key.with_text("kind", kind.name());
    match kind.subject() {
        "town" => (0..facts.towns.len())
            .filter_map(|town| about_town(facts, town, &key))
            .collect(),
        "work" => (0..facts.works.len())
            .filter_map(|work| about_work(facts, work, kind, &key))
            .collect(),
        _ => (0..facts.people.len())
            .filter_map(|person| about_person(facts, person, kind, &key))
            .collect(),
    }
}

fn asked<const N: usize>(
    kind: QuestionKind,
    key: &RandomKey,
    held_out: bool,
    wordings: &[String; N],
    queries: Vec<String>,
    answer: String,
) -> Asked {
    let subject = queries.first().cloned().unwrap_or_default();
    let mut random = key.with_text("subject", &subject).generator();
    Asked {
        question: Question {
            id: format!("{}/{subject}", kind.name()),
            data_source: kind.name().to_owned(),
            text: random.choose(wordings).cloned().unwrap_or_default(),
            golden_answers: vec![answer.clone()],
        },
        plan: Plan {
            kind,
            queries,
            answer,
        },
        held_out,
    }
}

fn about_town(facts: &Facts, town: usize, key: &RandomKey) -> Option<Asked> {
    let place = facts.towns.get(town)?;
    let (name, country) = (&place.name, facts.countries.get(place.country)?);
    let wordings = [
        format!("In which country does one find {name}?"),
        format!("What country is {name} part of?"),
        format!("Which nation would a visitor of {name} enter?"),
    ];
    let held_out = facts.held_out_town(town);
    Some(asked(
        QuestionKind::Country,
        key,
        held_out,
        &wordings,
        vec![name.clone()],
        country.clone(),
    ))
}

fn about_work(facts: &Facts, work: usize, kind: QuestionKind, key: &RandomKey) -> Option<Asked> {
    let work = facts.works.get(work)?;
    let creator = facts.people.get(work.creator)?;
    let held_out = facts.held_out_person(work.creator);
    let (title, name) = (&work.title, &creator.name);
    let (maker, made, thing) = (creator.craft.maker(), creator.craft.made(), creator.craft.work());
    let one = vec![title.clone()];
    let two = vec![title.clone(), name.clone()];
    let (wordings, queries, answer) = match kind {
        QuestionKind::Creator => {
            let wordings = [
                format!("Who {made} {title}?"),
                format!("Which {maker} is behind {title}?"),
                format!("To whom do we owe the {thing} {title}?"),
            ];
            (wordings, one, name.clone())
        }
        QuestionKind::WorkYear => {
            let wordings = [
                format!("What year does {title} date from?"),
                format!("When did {title} appear?"),
                format!("How old is the {thing} {title}, that is, of which year?"),
            ];
            (wordings, one, work.year.to_string())
        }
        QuestionKind::CreatorBirthplace => {
            let wordings = [
                format!("Which town did the {maker} of {title} come from?"),
                format!("What is the birthplace of whoever {made} {title}?"),
                format!("Where did the life of the {maker} behind {title} begin?"),
            ];
            let town = facts.towns.get(creator.birthplace)?;
            (wordings, two, town.name.clone())
        }
        QuestionKind::CreatorBirthYear => {
            let wordings = [
                format!("When was whoever {made} {title} born?"),
                format!("What is the birth year of the {maker} of {title}?"),
                format!("In which year did the {maker} behind {title} come to life?"),
            ];
            (wordings, two, creator.birth_year.to_string())
        }
        _ => {
            let wordings = [
                format!("Who was the teacher of the {maker} of {title}?"),
                format!("Whose lessons did whoever {made} {title} take?"),
                format!("Who trained the {maker} behind {title}?"),
            ];
            let teacher = facts.people.get(creator.teacher?)?;
            (wordings, two, teacher.name.clone())
        }
    };
    Some(asked(kind, key, held_out, &wordings, queries, answer))
}

fn about_person(facts: &Facts, person: usize, kind: QuestionKind, key: &RandomKey) -> Option<Asked> {
    let held_out = facts.held_out_person(person);
    let person = facts.people.get(person)?;
    let name = &person.name;
    let town = facts.towns.get(person.birthplace)?;
    let teacher = person.teacher.and_then(|teacher| facts.people.get(teacher));
    let one = vec![name.clone()];
    let (wordings, queries, answer) = match kind {
        QuestionKind::Birthplace => {
            let wordings = [
                format!("Where did {name} come from?"),
                format!("What is the birthplace of {name}?"),
                format!("Which town can call {name} its own?"),
            ];
            (wordings, one, town.name.clone())
        }
        QuestionKind::BirthYear => {
            let wordings = [
                format!("When was {name} born?"),
                format!("What is the birth year of {name}?"),
                format!("Which year saw the birth of {name}?"),
            ];
            (wordings, one, person.birth_year.to_string())
        }
        QuestionKind::Teacher => {
            let wordings = [
                format!("Who was the teacher of {name}?"),
                format!("Whose lessons did {name} take?"),
                format!("Who trained {name}?"),
            ];
            (wordings, one, teacher?.name.clone())
        }
        QuestionKind::BirthplaceCountry => {
            let wordings = [
                format!("In which country was {name} born?"),
                format!("What is the native country of {name}?"),
                format!("Which nation did {name} come from?"),
            ];
            let country = facts.countries.get(town.country)?;
            (wordings, vec![name.clone(), town.name.clone()], country.clone())
        }
        QuestionKind::TeacherBirthYear => {
            let wordings = [
                format!("When was the teacher of {name} born?"),
                format!("What is the birth year of the person who trained {name}?"),
                format!("In which year did the teacher of {name} come to life?"),
            ];
            let teacher = teacher?;
            let queries = vec![name.clone(), teacher.name.clone()];
            (wordings, queries, teacher.birth_year.to_string())
        }
        _ => {
            let wordings = [
                format!("Where did the teacher of {name} come from?"),
                format!("What is the birthplace of the person who trained {name}?"),
                format!("Which town was home to whoever gave lessons to {name}?"),
            ];
            let teacher = teacher?;
            let queries = vec![name.clone(), teacher.name.clone()];
            (
                wordings,
                queries,
                facts.towns.get(teacher.birthplace)?.name.clone(),
            )
        }
    };
    Some(asked(kind, key, held_out, &wordings, queries, answer))
}
