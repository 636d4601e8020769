//! ALFWorld's games as tasks of a [`World`].
//!
//! Not for: the household generator's games (see [`household`](crate::household)), or prompts, which come with the
//! dialogue given to the constructor.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use seed_env::{Dialogue, Environment, SkillRules, Split, Task, World};

use crate::expert::GameSkills;
use crate::library::WORLD_NAME;
use crate::{GameEnvironment, GameSource, Library, LibraryError, LibraryOptions};

/// Steps after which an episode is cut, unless the configuration says otherwise.
const DEFAULT_MAX_STEPS: usize = 30;

/// The tasks of a library. Ids read `alfworld/valid_seen/<task folder>/<trial>`.
pub struct AlfworldWorld {
    library: Arc<Library>,
    tasks: BTreeMap<Split, Vec<Task>>,
    dialogue: Arc<dyn Dialogue>,
    skills: GameSkills,
}

impl AlfworldWorld {
    /// Opens the games at a path (see [`Library::open`]).
    ///
    /// # Errors
    /// [`LibraryError`] when there are no games, or one of them cannot be read.
    pub fn open(
        path: &Path,
        options: &LibraryOptions,
        dialogue: Arc<dyn Dialogue>,
    ) -> Result<Self, LibraryError> {
        Ok(Self::new(Library::open(path, options)?, dialogue))
    }

    /// The world of an open library.
    pub fn new(library: Library, dialogue: Arc<dyn Dialogue>) -> Self {
        let tasks = Split::ALL
            .into_iter()
            .map(|split| {
                let tasks = library
                    .games(split)
                    .iter()
                    .map(|game| Task {
                        id: game.id().clone(),
                        split,
                        family: game.family().name().to_owned(),
                    })
                    .collect();
                (split, tasks)
            })
            .collect();
        let library = Arc::new(library);
        Self {
            skills: GameSkills::new(Arc::clone(&library) as Arc<dyn GameSource>),
            library,
            tasks,
            dialogue,
        }
    }

    /// The games behind the tasks.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }
}

impl World for AlfworldWorld {
    fn name(&self) -> &str {
        WORLD_NAME
    }

    fn tasks(&self, split: Split) -> &[Task] {
        self.tasks.get(&split).map_or(&[], Vec::as_slice)
    }

    /// Unlike a generator's, these games can change under the same ids: their contents count.
    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for split in Split::ALL {
            for game in self.library.games(split) {
                hasher.update(game.id().as_str().as_bytes());
                hasher.update(b"\n");
                hasher.update(game.content());
            }
        }
        hasher.finalize().to_hex().to_string()
    }

    fn environment(&self) -> Box<dyn Environment> {
        Box::new(GameEnvironment::new(
            Arc::clone(&self.library) as Arc<dyn GameSource>
        ))
    }

    fn dialogue(&self) -> &dyn Dialogue {
        self.dialogue.as_ref()
    }

    fn skill_rules(&self) -> Option<&dyn SkillRules> {
        Some(&self.skills)
    }

    fn default_max_steps(&self) -> usize {
        DEFAULT_MAX_STEPS
    }
}
