//! The knowledge world as tasks: splits, passages, and plans by task.
//!
//! Not for: what is true in it ([`super::draw`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{Dialogue, Environment, Split, Task, TaskId, World};
use seed_random::{Draw, RandomKey};

use super::draw::{Facts, KnowledgeConfig};
use super::questions::{Asked, Plan, QuestionKind, questions};
use super::texts::passages;
use crate::bm25_retriever::Bm25Retriever;
use crate::passages::Passages;
use crate::world::{QuestionSplits, SearchWorld};
use crate::{Accents, SearchError, SearchOptions};

/// A generated world with its passages in a BM25 index. Task ids read `knowledge/train/000017`; a task's family is
/// its kind of question.
pub struct KnowledgeWorld {
    world: SearchWorld,
    passages: Arc<Passages>,
    plans: BTreeMap<TaskId, Plan>,
}

impl KnowledgeWorld {
    /// Draws a world.
    ///
    /// # Errors
    /// [`SearchError::TooFewQuestions`] when the world is too small for as many questions as the configuration wants.
    pub fn new(config: &KnowledgeConfig, options: SearchOptions) -> Result<Self, SearchError> {
        let key = RandomKey::new(config.seed).with_text("world", "knowledge");
        let facts = Facts::draw(&key);
        let passages = Arc::new(Passages::new(passages(
            &facts,
            &key.with_text("part", "passages"),
        )));
        let splits = split(&facts, config, &key.with_text("part", "questions"))?;
        let retriever = Bm25Retriever::new(Arc::clone(&passages), Accents::Keep, &mut |_| {})?;
        let mut plans = BTreeMap::new();
        let mut lists = Vec::new();
        let name = config.name();
        for (split, asked) in splits {
            let mut list = Vec::with_capacity(asked.len());
            for (index, asked) in asked.into_iter().enumerate() {
                plans.insert(SearchWorld::task_id(&name, split, index), asked.plan);
                list.push(asked.question);
            }
            lists.push((split, list));
        }
        let world = SearchWorld::new(&name, QuestionSplits::new(lists), Arc::new(retriever), options);
        Ok(Self {
            world,
            passages,
            plans,
        })
    }

    /// All that can be found.
    pub fn passages(&self) -> &Passages {
        &self.passages
    }

    /// How a task is answered by one who knows the world; `None` for a task of another world.
    pub fn plan(&self, task: &TaskId) -> Option<&Plan> {
        self.plans.get(task)
    }

    /// The world as questions and a retriever.
    pub fn search_world(&self) -> &SearchWorld {
        &self.world
    }
}

/// Deals the questions to the splits. Of each kind the first ones of a shuffled list go to the small splits, so
/// that these hold every kind about equally often; training takes of all that are left.
fn split(
    facts: &Facts,
    config: &KnowledgeConfig,
    key: &RandomKey,
) -> Result<Vec<(Split, Vec<Asked>)>, SearchError> {
    let mut familiar: Vec<Vec<Asked>> = Vec::new();
    let mut held_out: Vec<Vec<Asked>> = Vec::new();
    for kind in QuestionKind::ALL {
        let mut all = questions(facts, kind, key);
        key.with_text("shuffle", kind.name())
            .generator()
            .shuffle(&mut all);
        // Popped from the end.
        let (out, known): (Vec<Asked>, Vec<Asked>) = all.into_iter().partition(|asked| asked.held_out);
        held_out.push(out);
        if !kind.is_held_out() {
            familiar.push(known);
        }
    }
    let seen = deal(&mut familiar, config.seen);
    let development = deal(&mut familiar, config.development);
    let mut train: Vec<Asked> = familiar.into_iter().flatten().collect();
    key.with_text("shuffle", "train").generator().shuffle(&mut train);
    train.truncate(config.train);
    let unseen = deal(&mut held_out, config.unseen);
    let splits = vec![
        (Split::Train, train, config.train),
        (Split::Development, development, config.development),
        (Split::Seen, seen, config.seen),
        (Split::Unseen, unseen, config.unseen),
    ];
    splits
        .into_iter()
        .map(|(split, asked, wanted)| {
            if asked.len() < wanted {
                return Err(SearchError::TooFewQuestions {
                    split: split.name(),
                    wanted,
                    available: asked.len(),
                });
            }
            Ok((split, asked))
        })
        .collect()
}

/// Takes up to `count` questions, one of each list in turn.
fn deal(lists: &mut [Vec<Asked>], count: usize) -> Vec<Asked> {
    let mut dealt = Vec::with_capacity(count);
    while dealt.len() < count {
        let before = dealt.len();
        for list in lists.iter_mut() {
            if dealt.len() < count {
                dealt.extend(list.pop());
            }
        }
        if dealt.len() == before {
            break;
        }
    }
    dealt
}

impl World for KnowledgeWorld {
    fn name(&self) -> &str {
        self.world.name()
    }

    fn tasks(&self, split: Split) -> &[Task] {
        self.world.tasks(split)
    }

    fn digest(&self) -> String {
        self.world.digest()
    }

    fn environment(&self) -> Box<dyn Environment> {
        self.world.environment()
    }

    fn dialogue(&self) -> &dyn Dialogue {
        self.world.dialogue()
    }

    fn default_max_steps(&self) -> usize {
        self.world.default_max_steps()
    }
}
