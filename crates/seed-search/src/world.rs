//! Questions as tasks of a [`World`].
//!
//! Not for: opening files by a configuration's words.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use seed_env::{Dialogue, Environment, EnvironmentError, Split, Task, TaskId, World};

use crate::dialogue::SearchDialogue;
use crate::environment::{QuestionSource, SearchEnvironment};
use crate::question::Question;
use crate::question_file::read_questions;
use crate::retriever::Retriever;
use crate::{SearchError, SearchOptions};

/// Endings of question files, in order of preference.
const ENDINGS: [&str; 4] = ["parquet", "jsonl", "jsonl.gz", "jsonl.zst"];

/// Questions by split, each list in its canonical order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionSplits {
    lists: BTreeMap<Split, Vec<Question>>,
}

impl QuestionSplits {
    /// Splits with the given questions; a split that is not named is empty.
    pub fn new(lists: impl IntoIterator<Item = (Split, Vec<Question>)>) -> Self {
        Self {
            lists: lists.into_iter().collect(),
        }
    }

    /// Reads a folder of question files as verl and Search-R1 prepare them: `train`, `dev` and `test`, each ending
    /// in `.parquet`, `.jsonl`, `.jsonl.gz` or `.jsonl.zst`; a file that is not there leaves its split empty.
    ///
    /// Test questions of a source that is trained on are in distribution ([`Split::Seen`]), those of the other
    /// sources out of distribution ([`Split::Unseen`]). Without training questions all are unseen.
    ///
    /// # Errors
    /// [`SearchError::NoQuestionFiles`] when the folder has none of the files; else as [`read_questions`].
    pub fn read(folder: &Path) -> Result<Self, SearchError> {
        let read = |name: &str| match question_file(folder, name) {
            Some(path) => read_questions(&path).map(Some),
            None => Ok(None),
        };
        let (train, development, test) = (read("train")?, read("dev")?, read("test")?);
        if train.is_none() && development.is_none() && test.is_none() {
            return Err(SearchError::NoQuestionFiles {
                folder: folder.to_owned(),
            });
        }
        let train = train.unwrap_or_default();
        let sources: BTreeSet<&str> = train
            .iter()
            .map(|question| question.data_source.as_str())
            .collect();
        let (seen, unseen) = test
            .unwrap_or_default()
            .into_iter()
            .partition(|question| sources.contains(question.data_source.as_str()));
        Ok(Self::new([
            (Split::Train, train),
            (Split::Development, development.unwrap_or_default()),
            (Split::Seen, seen),
            (Split::Unseen, unseen),
        ]))
    }

    /// The questions of a split.
    pub fn questions(&self, split: Split) -> &[Question] {
        self.lists.get(&split).map_or(&[], Vec::as_slice)
    }
}

fn question_file(folder: &Path, name: &str) -> Option<PathBuf> {
    ENDINGS
        .iter()
        .map(|ending| folder.join(format!("{name}.{ending}")))
        .find(|path| path.is_file())
}

/// Questions, a retriever and the rules between them. Task ids read `search-qa/train/000017`, numbered as in the
/// file; a task's family is its question's data source, so success is reported by source and as the unweighted mean
/// over sources.
pub struct SearchWorld {
    questions: Arc<Questions>,
    tasks: BTreeMap<Split, Vec<Task>>,
    retriever: Arc<dyn Retriever>,
    options: SearchOptions,
    dialogue: SearchDialogue,
}

impl SearchWorld {
    /// A world of the given name, in which task ids begin with that name.
    pub fn new(
        name: &str,
        splits: QuestionSplits,
        retriever: Arc<dyn Retriever>,
        options: SearchOptions,
    ) -> Self {
        let tasks = splits
            .lists
            .iter()
            .map(|(&split, questions)| {
                let task = |(index, question): (usize, &Question)| Task {
                    id: Self::task_id(name, split, index),
                    split,
                    family: question.data_source.clone(),
                };
                (split, questions.iter().enumerate().map(task).collect())
            })
            .collect();
        let questions = Questions {
            name: name.to_owned(),
            lists: splits
                .lists
                .into_iter()
                .map(|(split, questions)| (split, questions.into_iter().map(Arc::new).collect()))
                .collect(),
        };
        Self {
            questions: Arc::new(questions),
            tasks,
            retriever,
            options,
            dialogue: SearchDialogue::new(options.dialect, options.style),
        }
    }

    /// The id of the question at a position of a split.
    pub(crate) fn task_id(name: &str, split: Split, index: usize) -> TaskId {
        TaskId::new(format!("{name}/{}/{index:06}", split.name()))
    }

    /// The question of a task.
    ///
    /// # Errors
    /// [`EnvironmentError::UnknownTask`].
    pub fn question(&self, task: &TaskId) -> Result<Arc<Question>, EnvironmentError> {
        self.questions.question(task)
    }

    /// Who finds passages.
    pub fn retriever(&self) -> &Arc<dyn Retriever> {
        &self.retriever
    }

    /// The rules.
    pub fn options(&self) -> SearchOptions {
        self.options
    }
}

impl World for SearchWorld {
    fn name(&self) -> &str {
        &self.questions.name
    }

    fn tasks(&self, split: Split) -> &[Task] {
        self.tasks.get(&split).map_or(&[], Vec::as_slice)
    }

    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut field = |text: &str| {
            // The length in front keeps neighbours apart.
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        field(&self.questions.name);
        field(self.options.dialect.name());
        field(&self.options.max_turns.to_string());
        field(&self.options.top_k.to_string());
        field(&self.retriever.identity());
        for (split, questions) in &self.questions.lists {
            field(split.name());
            for question in questions {
                field(&question.data_source);
                field(&question.text);
                field(&question.golden_answers.len().to_string());
                for answer in &question.golden_answers {
                    field(answer);
                }
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(SearchEnvironment::new(
            Arc::clone(&self.questions) as Arc<dyn QuestionSource>,
            Arc::clone(&self.retriever),
            self.options,
        ))
    }

    fn dialogue(&self) -> &dyn Dialogue {
        &self.dialogue
    }

    fn is_native(&self) -> bool {
        self.retriever.is_native()
    }

    fn default_max_steps(&self) -> usize {
        self.options.max_turns
    }
}

/// The questions of a world by task id.
struct Questions {
    name: String,
    lists: BTreeMap<Split, Vec<Arc<Question>>>,
}

impl QuestionSource for Questions {
    fn question(&self, task: &TaskId) -> Result<Arc<Question>, EnvironmentError> {
        self.find(task)
            .cloned()
            .ok_or_else(|| EnvironmentError::UnknownTask {
                task: task.clone(),
                world: self.name.clone(),
            })
    }
}

impl Questions {
    fn find(&self, task: &TaskId) -> Option<&Arc<Question>> {
        let rest = task.as_str().strip_prefix(&self.name)?.strip_prefix('/')?;
        let (split_name, digits) = rest.split_once('/')?;
        let split = Split::ALL.into_iter().find(|split| split.name() == split_name)?;
        let index: usize = digits.parse().ok()?;
        // Only the canonical spelling is an id: no signs, no missing zeros.
        self.lists
            .get(&split)?
            .get(index)
            .filter(|_| format!("{index:06}") == digits)
    }
}
