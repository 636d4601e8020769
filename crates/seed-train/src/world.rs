//! The registry of worlds: from a configuration's name to tasks that can be played.

use std::path::PathBuf;
use std::sync::Arc;

use seed_alfworld::household::{HouseholdConfig, HouseholdError, HouseholdSize, HouseholdWorld};
use seed_alfworld::{AlfworldWorld, Game, GameSource, LibraryError, LibraryOptions};
use seed_env::{EnvironmentError, HouseholdDialogue, HouseholdStyle, TaskId, World};
use thiserror::Error;

use crate::config::{PromptStyle, WorldName, WorldSection};

/// Variable naming ALFWorld's data folder, as in ALFWorld itself.
pub const DATA_VARIABLE: &str = "ALFWORLD_DATA";

/// Why a world could not be opened.
#[derive(Debug, Error)]
pub enum WorldError {
    /// No folder is named.
    #[error(
        "`world.name = \"alfworld\"` needs ALFWorld's games: set `world.data` or the variable `ALFWORLD_DATA` to the \
         folder that holds `json_2.1.1`, or use `household-studio` or `household-full`, which need no download"
    )]
    NoData,
    /// The games could not be read.
    #[error("ALFWorld's games in `{}` could not be opened", path.display())]
    Alfworld {
        /// The folder.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: LibraryError,
    },
    /// The household generator refuses its seed.
    #[error(transparent)]
    Household(#[from] HouseholdError),
    /// A game could not be made or read.
    #[error(transparent)]
    Game(#[from] EnvironmentError),
}

/// An open world with the games behind its tasks.
#[derive(Clone)]
pub struct OpenWorld {
    /// Tasks, environments and wording.
    pub world: Arc<dyn World>,
    /// The games, for scripted players.
    pub games: Arc<dyn GameSource>,
}

/// Games of a household world, shared with the world itself.
struct HouseholdGames(Arc<HouseholdWorld>);

impl GameSource for HouseholdGames {
    fn game(&self, task: &TaskId) -> Result<Arc<Game>, EnvironmentError> {
        self.0.game(task)
    }
}

impl From<PromptStyle> for HouseholdStyle {
    fn from(style: PromptStyle) -> Self {
        match style {
            PromptStyle::Full => Self::Full,
            PromptStyle::Compact => Self::Compact,
        }
    }
}

/// Opens the world a configuration names.
///
/// # Errors
/// [`WorldError`] saying what to set when ALFWorld's data is missing, or which file is wrong.
pub fn open_world(section: &WorldSection) -> Result<OpenWorld, WorldError> {
    let style = HouseholdStyle::from(section.prompts);
    let household = |size| {
        let config = HouseholdConfig {
            world_seed: section.generator_seed,
            style,
            ..HouseholdConfig::new(size)
        };
        let world = Arc::new(HouseholdWorld::new(config)?);
        Ok(OpenWorld {
            games: Arc::new(HouseholdGames(world.clone())),
            world,
        })
    };
    match section.name {
        WorldName::HouseholdStudio => household(HouseholdSize::Studio),
        WorldName::HouseholdFull => household(HouseholdSize::Full),
        WorldName::Alfworld => {
            let path = section
                .data
                .clone()
                .or_else(|| std::env::var_os(DATA_VARIABLE).map(PathBuf::from))
                .ok_or(WorldError::NoData)?;
            let dialogue = Arc::new(HouseholdDialogue::new(style));
            let world = AlfworldWorld::open(&path, &LibraryOptions::default(), dialogue)
                .map_err(|source| WorldError::Alfworld { path, source })?;
            let games = Arc::clone(world.library()) as Arc<dyn GameSource>;
            Ok(OpenWorld {
                world: Arc::new(world),
                games,
            })
        }
    }
}
