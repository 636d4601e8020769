//! A question with the answers that count as right, and the records in which the field keeps such questions.
//!
//! Not for: reading files ([`crate::read_questions`]).

use serde_json::Value;

use crate::python::strip;

/// The longest question, in characters.
const LONGEST_QUESTION: usize = 16_384;

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What the data set calls it; the number of its record, from 0, where the record has no `id`.
    pub id: String,
    /// The data set it comes from, such as `hotpotqa`: success is reported by it.
    pub data_source: String,
    /// The question, ending in a question mark.
    pub text: String,
    /// Answers that count as right; at least one.
    pub golden_answers: Vec<String>,
}

/// A field of a question and where records of different makers keep it, in order of preference. The first name of a
/// place is a column.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) places: &'static [&'static [&'static str]],
}

const TEXT: Field = Field {
    name: "question",
    places: &[
        &["question"],
        &["env_kwargs", "question"],
        &["extra_info", "question"],
    ],
};
const SOURCE: Field = Field {
    name: "data_source",
    places: &[&["data_source"], &["env_kwargs", "data_source"]],
};
const ANSWERS: Field = Field {
    name: "golden_answers",
    places: &[
        &["golden_answers"],
        &["env_kwargs", "ground_truth", "target"],
        &["reward_model", "ground_truth", "target"],
        &["env_kwargs", "ground_truth"],
        &["reward_model", "ground_truth"],
    ],
};

impl Field {
    /// Fields without which a record is no question.
    pub(crate) const REQUIRED: [Self; 3] = [TEXT, SOURCE, ANSWERS];

    /// Columns that may hold it, each once.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let mut columns = Vec::new();
        for column in self.places.iter().filter_map(|place| place.first().copied()) {
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// Its value in a record; JSON's null counts as absent.
    fn find<'a>(&self, record: &'a Value) -> Option<&'a Value> {
        self.places.iter().find_map(|place| {
            place
                .iter()
                .try_fold(record, |value, name| value.get(name))
                .filter(|value| !value.is_null())
        })
    }

    fn missing(&self) -> String {
        let places: Vec<String> = self
            .places
            .iter()
            .map(|place| format!("`{}`", place.join(".")))
            .collect();
        format!("it has no `{}` (looked for {})", self.name, places.join(", "))
    }
}

impl Question {
    /// Reads a record: FlashRAG's and Search-R1's `question`, `golden_answers` and `data_source`, or verl's
    /// `env_kwargs` and `reward_model.ground_truth.target`.
    ///
    /// White space around the question goes, and a question mark is added where there is none, as Search-R1's
    /// preparation does.
    ///
    /// # Errors
    /// What is missing or wrong, in words that follow the record's name.
    pub fn from_record(record: &Value, number: usize) -> Result<Self, String> {
        let text = TEXT.find(record).ok_or_else(|| TEXT.missing())?;
        let text = text.as_str().ok_or("its `question` is no text")?;
        let mut text = strip(text).to_owned();
        if text.is_empty() {
            return Err("its `question` is empty".to_owned());
        }
        if text.chars().count() > LONGEST_QUESTION {
            return Err(format!(
                "its `question` has more than {LONGEST_QUESTION} characters"
            ));
        }
        if !text.ends_with('?') {
            text.push('?');
        }
        let data_source = SOURCE.find(record).ok_or_else(|| SOURCE.missing())?;
        let data_source = match data_source.as_str().map(strip) {
            Some(source) if !source.is_empty() => source.to_owned(),
            _ => return Err("its `data_source` is no name".to_owned()),
        };
        let golden_answers = match ANSWERS.find(record).ok_or_else(|| ANSWERS.missing())? {
            Value::String(answer) => vec![answer.clone()],
            Value::Array(answers) => answers
                .iter()
                .map(|answer| answer.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or("one of its `golden_answers` is no text")?,
            _ => return Err("its `golden_answers` are no list of texts".to_owned()),
        };
        if golden_answers.is_empty() {
            return Err("its `golden_answers` are empty: nothing could be right".to_owned());
        }
        let id = match record.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => number.to_string(),
        };
        Ok(Self {
            id,
            data_source,
            text,
            golden_answers,
        })
    }
}
