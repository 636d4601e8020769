//! Files of questions: JSON lines, plain or compressed, and parquet.
//!
//! Not for: what a record holds ([`Question::from_record`]), or passages.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::Type;
use seed_run::read_json_lines;
use serde_json::Value;

use crate::SearchError;
use crate::question::{Field, Question};

/// Reads a file of questions: parquet when its name ends in `.parquet`, else lines of JSON, which may be compressed
/// (`.zst`, `.gz`).
///
/// Of a parquet file only the columns that can matter are read; see [`Question::from_record`] for which.
///
/// # Errors
/// [`SearchError::MissingColumns`] naming what a parquet file lacks, [`SearchError::Question`] naming the first record
/// that is no question, [`SearchError::NoQuestions`] for an empty file, [`SearchError::Parquet`] or
/// [`SearchError::File`] for one that cannot be read.
pub fn read_questions(path: &Path) -> Result<Vec<Question>, SearchError> {
    let questions = if path.extension().is_some_and(|extension| extension == "parquet") {
        read_parquet(path)?
    } else {
        read_json_lines::<Value>(path)?
            .enumerate()
            .map(|(index, record)| question(path, index, &record?))
            .collect::<Result<_, _>>()?
    };
    if questions.is_empty() {
        return Err(SearchError::NoQuestions {
            path: path.to_owned(),
        });
    }
    Ok(questions)
}

fn question(path: &Path, index: usize, record: &Value) -> Result<Question, SearchError> {
    Question::from_record(record, index).map_err(|message| SearchError::Question {
        path: path.to_owned(),
        record: index + 1,
        message,
    })
}

fn read_parquet(path: &Path) -> Result<Vec<Question>, SearchError> {
    let unreadable = |message: String| SearchError::Parquet {
        path: path.to_owned(),
        message,
    };
    // The reader panics on values of kinds it does not know and on some damaged pages; a question file may be both.
    let read = catch_unwind(AssertUnwindSafe(|| parquet_questions(path)));
    read.map_err(|panic| unreadable(panic_message(&*panic)))?
}

fn parquet_questions(path: &Path) -> Result<Vec<Question>, SearchError> {
    let failed = |error: ParquetError| SearchError::Parquet {
        path: path.to_owned(),
        message: error.to_string(),
    };
    let file = fs_err::File::open(path)?;
    let reader = SerializedFileReader::new(file.into_file()).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema();
    let columns = wanted_columns(path, schema)?;
    let projection = Type::group_type_builder(schema.name())
        .with_fields(columns)
        .build()
        .map_err(failed)?;
    reader
        .get_row_iter(Some(projection))
        .map_err(failed)?
        .enumerate()
        .map(|(index, row)| question(path, index, &row.map_err(failed)?.to_json_value()))
        .collect()
}

/// The columns to read, in the file's order.
fn wanted_columns(path: &Path, schema: &Type) -> Result<Vec<parquet::schema::types::TypePtr>, SearchError> {
    let has = |name: &str| schema.get_fields().iter().any(|field| field.name() == name);
    let missing: Vec<String> = Field::REQUIRED
        .iter()
        .map(Field::columns)
        .filter(|columns| !columns.iter().any(|column| has(column)))
        .map(|columns| format!("`{}`", columns.join("` or `")))
        .collect();
    if !missing.is_empty() {
        return Err(SearchError::MissingColumns {
            path: path.to_owned(),
            missing: missing.join(", "),
            found: schema
                .get_fields()
                .iter()
                .map(|field| format!("`{}`", field.name()))
                .collect::<Vec<_>>()
                .join(", "),
        });
    }
    let wanted = |name: &str| {
        name == "id"
            || Field::REQUIRED
                .iter()
                .any(|field| field.columns().contains(&name))
    };
    Ok(schema
        .get_fields()
        .iter()
        .filter(|field| wanted(field.name()))
        .cloned()
        .collect())
}

/// What a panic said.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "the reader gave up".to_owned())
}
