//! Household games as files of the original engine: a `game.tw-pddl` and a `traj_data.json` a game, in ALFWorld's tree.
//!
//! Domain and grammar come from a game file of the user's; this project ships neither. Not for: playing, or for reading
//! such files back (the library does).

use std::path::{Path, PathBuf};

use seed_env::Split;
use serde_json::{Value, json};

use super::catalogue::ReceptacleClass;
use super::generator::{HouseholdError, HouseholdGenerator};
use super::problem::Household;
use super::world::make_game;
use crate::{Family, read_game_file, split_folder};

const GOAL_MARK: &str = "Your task is to: ";

/// The domain and the grammar of a user's game file.
#[derive(Clone, Debug)]
pub struct EngineTemplate {
    domain: String,
    /// The grammar up to its goal sentence, and from the quote that ends it.
    grammar: (String, String),
}

impl EngineTemplate {
    /// Takes them from a `game.tw-pddl`, which must be one that the engine plays.
    ///
    /// # Errors
    /// [`HouseholdError::File`] when it cannot be read, [`HouseholdError::Problem`] when it is no such game.
    pub fn read(path: &Path) -> Result<Self, HouseholdError> {
        let bytes = fs_err::read(path).map_err(HouseholdError::File)?;
        let refuse = |source| HouseholdError::Problem {
            game: path.display().to_string(),
            source,
        };
        read_game_file(&bytes, "template").map_err(refuse)?;
        let file: Value =
            serde_json::from_slice(&bytes).map_err(|error| refuse(crate::ProblemError::Json(error)))?;
        let text = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default();
        let grammar = text("grammar");
        let (before, rest) = grammar
            .split_once(GOAL_MARK)
            .ok_or_else(|| refuse(crate::ProblemError::NoGoalSentence))?;
        let (_, after) = rest
            .split_once('"')
            .ok_or_else(|| refuse(crate::ProblemError::NoGoalSentence))?;
        Ok(Self {
            domain: text("pddl_domain").to_owned(),
            grammar: (format!("{before}{GOAL_MARK}"), format!("\"{after}")),
        })
    }

    /// The text of the `game.tw-pddl` of a household, given commands that win it.
    pub fn game_file(&self, household: &Household, walkthrough: &[&str]) -> String {
        let (before, after) = &self.grammar;
        json!({
            "pddl_domain": self.domain,
            "grammar": format!("{before}{}{after}", household.goal_sentence()),
            "pddl_problem": household.problem(),
            "solvable": true,
            "walkthrough": walkthrough,
        })
        .to_string()
    }

    /// Writes game `index` of `split` below `root`: `json_2.1.1/<split>/<task>/<trial>/`. Returns the trial's folder.
    ///
    /// # Errors
    /// [`HouseholdError::File`] when a file cannot be written; the generator's errors.
    pub fn write(
        &self,
        root: &Path,
        generator: &HouseholdGenerator,
        split: Split,
        index: usize,
    ) -> Result<PathBuf, HouseholdError> {
        let household = generator.household(split, index)?;
        let game = make_game(generator, split, index, &household.trial)?;
        let walkthrough: Vec<&str> = game.walkthrough().collect();
        let folder = root
            .join("json_2.1.1")
            .join(split_folder(split))
            .join(household.task_folder())
            .join(&household.trial);
        fs_err::create_dir_all(&folder).map_err(HouseholdError::File)?;
        let write =
            |name: &str, text: String| fs_err::write(folder.join(name), text).map_err(HouseholdError::File);
        write("game.tw-pddl", self.game_file(&household, &walkthrough))?;
        write("traj_data.json", household.trajectory_data())?;
        Ok(folder)
    }
}

impl Household {
    /// The task folder's name, such as `pick_and_place_simple-Mug-None-Desk-501`.
    pub fn task_folder(&self) -> String {
        let combination = &self.combination;
        format!(
            "{}-{}-None-{}-{}",
            combination.family.name(),
            combination.object.name(),
            combination.target.map_or("DeskLamp", ReceptacleClass::name),
            self.room.number
        )
    }

    /// The text of `traj_data.json`: what ALFWorld's loader and its rule expert read of it.
    pub fn trajectory_data(&self) -> String {
        let combination = &self.combination;
        let toggle = if combination.family == Family::LookAtObjInLight {
            "DeskLamp"
        } else {
            ""
        };
        json!({
            "task_id": self.trial,
            "task_type": combination.family.name(),
            "pddl_params": {
                "mrecep_target": "",
                "object_sliced": false,
                "object_target": combination.object.name(),
                "parent_target": combination.target.map_or("", ReceptacleClass::name),
                "toggle_target": toggle,
            },
            "scene": {
                "scene_num": self.room.number,
                "floor_plan": format!("FloorPlan{}", self.room.number),
                "random_seed": 0,
            },
            "turk_annotations": { "anns": [{ "task_desc": self.goal_sentence() }] },
        })
        .to_string()
    }
}
