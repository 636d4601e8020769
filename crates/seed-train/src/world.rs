//! The registry of worlds: from a configuration's name to tasks that can be played.

mod search;

use std::path::PathBuf;
use std::sync::Arc;

use seed_alfworld::household::{HouseholdConfig, HouseholdError, HouseholdSize, HouseholdWorld};
use seed_alfworld::{AlfworldWorld, GameSource, LibraryError, LibraryOptions};
use seed_env::{EnvironmentError, HouseholdDialogue, HouseholdStyle, World};
use seed_search::{KnowledgeWorld, SearchError};
use seed_webshop::{
    Catalogue, CatalogueFiles, CatalogueSize, EpisodeReward, GENERATED_PRODUCTS, GoalKind, GoalSplit, Shop,
    WebshopError, WebshopStyle, WebshopWorld, WorldOptions, generate_catalogue,
};
use thiserror::Error;

use crate::config::{
    PromptStyle, SearchSection, ShopCatalogue, ShopGoals, ShopReward, ShopSplit, WorldName, WorldSection,
};

/// Variable naming ALFWorld's data folder, as in ALFWorld itself.
pub const DATA_VARIABLE: &str = "ALFWORLD_DATA";

/// Variable naming WebShop's data folder.
pub const WEBSHOP_VARIABLE: &str = "WEBSHOP_DATA";

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
    /// No folder is named.
    #[error(
        "`world.name = \"webshop\"` needs WebShop's products: set `world.data` or the variable `WEBSHOP_DATA` to the folder \
         that holds `items_shuffle_1000.json`, or use `shop`, which needs no download"
    )]
    NoWebshopData,
    /// A shop could not be opened.
    #[error("the shop could not be opened")]
    Webshop(#[from] WebshopError),
    /// A key that a search world cannot do without is unset.
    #[error(
        "`world.name = \"search-qa\"` needs {what}: set `{key}`, or use `knowledge`, which needs no files"
    )]
    NoSearchData {
        /// The key.
        key: &'static str,
        /// What it names.
        what: &'static str,
    },
    /// Questions, passages or the retriever are not usable.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A game could not be made or read.
    #[error(transparent)]
    Game(#[from] EnvironmentError),
    /// Demonstrations are asked for in a world without a script.
    #[error(
        "nobody plays the world `{world}` by script; use a household, a shop or `knowledge` for demonstrations"
    )]
    NoScript {
        /// The world that is open.
        world: String,
    },
    /// A scripted household player or its skills are asked for in another world.
    #[error(
        "the world `{world}` has no household games, which {what} need; use `household-studio`, `household-full` or `alfworld`"
    )]
    NoHousehold {
        /// The world that is open.
        world: String,
        /// What was asked for.
        what: &'static str,
    },
}

/// An open world with what scripted players of its kind need.
#[derive(Clone)]
pub struct OpenWorld {
    /// Tasks, environments and wording.
    pub world: Arc<dyn World>,
    /// The games, where the world is a household.
    pub games: Option<Arc<dyn GameSource>>,
    /// The world itself, where it is a shop.
    pub shop: Option<Arc<WebshopWorld>>,
    /// The world itself, where it is the knowledge world.
    pub knowledge: Option<Arc<KnowledgeWorld>>,
}

impl OpenWorld {
    /// A world that nobody plays by script.
    pub fn of(world: Arc<dyn World>) -> Self {
        Self {
            world,
            games: None,
            shop: None,
            knowledge: None,
        }
    }

    /// The household games behind the tasks, for `what`.
    ///
    /// # Errors
    /// [`WorldError::NoHousehold`] in other worlds.
    pub fn household_games(&self, what: &'static str) -> Result<&Arc<dyn GameSource>, WorldError> {
        self.games.as_ref().ok_or_else(|| WorldError::NoHousehold {
            world: self.world.name().to_owned(),
            what,
        })
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

/// Opens the shop a configuration names.
fn open_shop(section: &WorldSection) -> Result<OpenWorld, WorldError> {
    let seed = section.generator_seed;
    let (name, catalogue) = if section.name == WorldName::Shop {
        ("shop", generate_catalogue(GENERATED_PRODUCTS, seed)?)
    } else {
        let path = section
            .data
            .clone()
            .or_else(|| std::env::var_os(WEBSHOP_VARIABLE).map(PathBuf::from))
            .ok_or(WorldError::NoWebshopData)?;
        let (name, size) = match section.shop_catalogue {
            ShopCatalogue::Small => ("webshop", CatalogueSize::Small),
            ShopCatalogue::Full => ("webshop-full", CatalogueSize::Full),
        };
        (name, Catalogue::read(&CatalogueFiles::in_folder(&path, size)?)?)
    };
    let (kind, kind_name) = match section.shop_goals {
        ShopGoals::Synthetic => (GoalKind::Synthetic, ""),
        ShopGoals::Human => (GoalKind::Human, "-human"),
    };
    let seed_name = match seed {
        0 => String::new(),
        seed => format!("-{seed}"),
    };
    let shop = Shop::new(Arc::new(catalogue), kind, seed)?;
    let world = Arc::new(WebshopWorld::new(
        Arc::new(shop),
        WorldOptions {
            name: format!("{name}{kind_name}{seed_name}"),
            split: match section.shop_split {
                ShopSplit::Order => GoalSplit::Order,
                ShopSplit::Product => GoalSplit::Product,
            },
            reward: match section.shop_reward {
                ShopReward::Success => EpisodeReward::Success,
                ShopReward::Score => EpisodeReward::Score,
            },
            style: match section.prompts {
                PromptStyle::Full => WebshopStyle::Full,
                PromptStyle::Compact => WebshopStyle::Compact,
            },
        },
    ));
    Ok(OpenWorld {
        shop: Some(world.clone()),
        ..OpenWorld::of(world)
    })
}

/// Opens the world a configuration names; `search` is read for search worlds only.
///
/// # Errors
/// [`WorldError`] saying what to set when a world's data is missing, or which file is wrong.
pub fn open_world(section: &WorldSection, search: &SearchSection) -> Result<OpenWorld, WorldError> {
    let style = HouseholdStyle::from(section.prompts);
    let household = |size| {
        let config = HouseholdConfig {
            world_seed: section.generator_seed,
            style,
            ..HouseholdConfig::new(size)
        };
        let world = Arc::new(HouseholdWorld::new(config)?);
        Ok(OpenWorld {
            games: Some(world.clone()),
            ..OpenWorld::of(world)
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
                games: Some(games),
                ..OpenWorld::of(Arc::new(world))
            })
        }
        WorldName::SearchQa => search::open_questions(section, search),
        WorldName::Knowledge => search::open_knowledge(section, search),
        WorldName::Webshop | WorldName::Shop => open_shop(section),
    }
}
