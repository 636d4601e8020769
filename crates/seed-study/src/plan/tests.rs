//! Study files as people write them, right and wrong.

use insta::assert_snapshot;
use proptest::prelude::*;
use seed_train::config::Algorithm;

use super::*;
use crate::panel::{Player, open_panels};

const CONFIG: &str = r#"
[run]
name = "base"
threads = 1

[model]
path = "models/given"

[algorithm]
iterations = 4

[evaluation]
before_training = true
splits = ["seen"]
"#;

const STUDY: &str = r#"
name = "toy"
config = "base.toml"
seeds = "3-5"

[set]
world.max_steps = 7

[[base]]
name = "A"
start = { plain = "models/a", analyst = "models/a-sft" }

[[base]]
name = "B"
start = { plain = "models/b", analyst = "models/b-sft" }
rollout.temperature = 0.9

[[arm]]
name = "GRPO"
baseline = true
start = "plain"
algorithm.name = "grpo"

[[arm]]
name = "SEED"
start = "analyst"
seeds = [3, 9]
algorithm.name = "seed"
seed.coefficient = 0.5

[[panel]]
name = "final"
temperatures = [0.4, 1]
world.max_steps = 20
"#;

fn plan(study: &str) -> Result<Plan, Vec<String>> {
    let file = StudyFile::parse("STUDY.toml", study)?;
    Plan::build(file, "base.toml", CONFIG, "STUDY.toml")
}

fn problems(study: &str) -> String {
    plan(study).unwrap_err().join("\n")
}

#[test]
fn an_arm_begins_from_another_s_keys_and_says_whom_it_is_compared_with() {
    let study = STUDY.replace(
        "[[panel]]",
        "[[arm]]\nname = \"frozen\"\nlike = \"SEED\"\nseed.analyser = \"frozen\"\nseed.coefficient = 0.25\n\
         [[arm]]\nname = \"placebo\"\nlike = \"frozen\"\nseeds = [3]\nagainst = [\"SEED\", \"frozen\"]\n\
         seed.skill_from = \"other_task\"\n[[panel]]",
    );
    let plan = plan(&study).unwrap();
    let placebo = plan
        .groups
        .iter()
        .find(|group| group.base == "B" && group.arm == "placebo")
        .unwrap();
    let seed = &placebo.config.seed;
    assert_eq!(placebo.config.algorithm.name, Algorithm::Seed);
    assert_eq!((seed.coefficient, seed.analyser.word()), (0.25, "frozen"));
    assert_eq!(seed.skill_from.word(), "other_task");
    assert_eq!(placebo.config.model.path, Path::new("models/b-sft"));
    assert_eq!(placebo.seeds, [3]);
    let frozen = plan.groups.iter().find(|group| group.arm == "frozen").unwrap();
    assert_eq!(frozen.seeds, [3, 9]);
    let contrasts: Vec<(&str, &str)> = plan
        .contrasts
        .iter()
        .map(|contrast| (contrast.arm.as_str(), contrast.against.as_str()))
        .collect();
    assert_eq!(contrasts, [("placebo", "SEED"), ("placebo", "frozen")]);

    let wrong = STUDY
        .replace(
            "seeds = [3, 9]",
            "like = \"GRP0\"\nagainst = [\"SEDE\", \"GRPO\", \"SEED\"]",
        )
        .replace("name = \"GRPO\"", "name = \"GRPO\"\nlike = \"SEED\"");
    assert_snapshot!(problems(&wrong), @r#"
    STUDY.toml:20: `like` of arm `GRPO` is `SEED`, and no arm of that name stands above it
    STUDY.toml:28: `like` of arm `SEED` is `GRP0`, and no arm of that name stands above it; did you mean `GRPO`?
    STUDY.toml: `against` of arm `SEED` names `SEDE`: there is no such arm; did you mean `SEED`?
    STUDY.toml: `against` of arm `SEED` names `GRPO`: every arm is compared with the baseline; leave it out
    STUDY.toml: `against` of arm `SEED` names `SEED`: that is the arm itself
    "#);
}

#[test]
fn arms_keep_to_their_bases_and_panels_to_their_arms() {
    let study = STUDY
        .replace("seeds = [3, 9]", "seeds = [3, 9]\nbases = [\"B\"]")
        .replace("name = \"final\"", "name = \"final\"\narms = [\"SEED\"]")
        .replace(
            "[[panel]]",
            "[[arm]]\nname = \"frozen\"\nlike = \"SEED\"\nseeds = [3]\nseed.analyser = \"frozen\"\n[[panel]]",
        );
    let plan = plan(&study).unwrap();
    let cells: Vec<String> = plan.cells().iter().map(|cell| cell.id.to_string()).collect();
    assert_eq!(
        cells,
        [
            "A/GRPO/seed-3",
            "B/GRPO/seed-3",
            "B/SEED/seed-3",
            "B/frozen/seed-3",
            "A/GRPO/seed-4",
            "B/GRPO/seed-4",
            "B/SEED/seed-9",
            "A/GRPO/seed-5",
            "B/GRPO/seed-5",
        ]
    );
    let open = |player| open_panels(&plan.panels, player, &[]);
    assert_eq!(open(Player::Arm("SEED")), [(0, 0.4), (0, 1.0)]);
    assert_eq!(open(Player::Arm("GRPO")), []);

    let wrong = STUDY
        .replace("seeds = [3, 9]", "bases = [\"C\", \"B\"]")
        .replace("baseline = true", "baseline = true\nbases = \"A\"")
        .replace("name = \"final\"", "name = \"final\"\narms = [\"SED\"]");
    assert_snapshot!(problems(&wrong), @r#"
    STUDY.toml: arm `GRPO` is the baseline and is run on every base; leave `bases` out
    STUDY.toml: `bases` of arm `SEED` names `C`, which is not there
    STUDY.toml: `arms` of panel `final` names `SED`, which is not there; did you mean `SEED`?
    "#);
    let empty = STUDY.replace("name = \"final\"", "name = \"final\"\narms = []");
    assert_snapshot!(problems(&empty), @"STUDY.toml:33: `arms` of panel `final` is a list of names");
}

#[test]
fn cells_are_interleaved_and_later_layers_win() {
    let plan = plan(STUDY).unwrap();
    let order: Vec<String> = plan.cells().iter().map(|cell| cell.id.to_string()).collect();
    assert_eq!(
        order,
        [
            "A/GRPO/seed-3",
            "A/SEED/seed-3",
            "B/GRPO/seed-3",
            "B/SEED/seed-3",
            "A/GRPO/seed-4",
            "A/SEED/seed-9",
            "B/GRPO/seed-4",
            "B/SEED/seed-9",
            "A/GRPO/seed-5",
            "B/GRPO/seed-5",
        ]
    );
    let cell = &plan.cells()[7];
    let config = &cell.config;
    assert_eq!(config.model.path, Path::new("models/b-sft"));
    assert_eq!((config.run.seed, config.run.name.as_str()), (9, "B/SEED"));
    assert_eq!(config.run.directory, Path::new("runs/toy/cells/B/SEED/seed-9"));
    assert_eq!((config.world.max_steps, config.rollout.temperature), (7, 0.9));
    assert_eq!(
        (config.algorithm.name, config.seed.coefficient),
        (Algorithm::Seed, 0.5)
    );
    assert_eq!(
        (plan.baseline.as_str(), plan.primary, plan.threads()),
        ("GRPO", Split::Seen, 1)
    );
    let starts: Vec<&Path> = plan
        .starts
        .iter()
        .map(|start| start.config.model.path.as_path())
        .collect();
    // In the order of their names.
    assert_eq!(
        starts,
        ["models/a-sft", "models/a", "models/b-sft", "models/b"].map(Path::new)
    );
    let panel = plan.panel_config(0, config, 0.4).unwrap();
    assert_eq!((panel.world.max_steps, panel.evaluation.temperature), (20, 0.4));
    assert_eq!(
        panel.evaluation.splits,
        [EvaluationSplit::Seen, EvaluationSplit::Unseen]
    );
}

#[test]
fn what_is_left_out_has_a_plain_meaning() {
    let least =
        "name = \"least\"\nconfig = \"base.toml\"\nseeds = [7]\n[[arm]]\nname = \"only\"\nbaseline = true\n";
    let plan = plan(least).unwrap();
    assert_eq!(plan.directory, Path::new("runs/least"));
    assert_eq!(
        (plan.bases.as_slice(), plan.cells().len()),
        (["base".to_owned()].as_slice(), 1)
    );
    assert_eq!(plan.cells()[0].config.model.path, Path::new("models/given"));
    let panel = &plan.panels[0];
    assert_eq!(
        (panel.name.as_str(), panel.temperatures.as_slice()),
        ("final", [0.4, 1.0].as_slice())
    );
}

#[test]
fn wrong_keys_are_named_with_their_line_and_what_was_meant() {
    let wrong = r#"
nam = "toy"
name = "t o y"
seeds = [1, 1]
primary = "sen"

[set]
run.seed = 4

[[base]]
name = "A"
model = "models/a"

[[arm]]
name = "GRPO"
basline = true
algoritm.name = "grpo"
seed.betta = 2.0

[[arm]]
name = "GRPO"
model.path = "models/b"
rollout.temperature = "hot"

[[panel]]
name = "final"
prompts = ["plain", "own_skil"]
temperatures = [-1]
evaluation.tasks = 3
"#;
    assert_snapshot!(problems(wrong), @r#"
    STUDY.toml:2: unknown key `nam` of the study; did you mean `name`?
    STUDY.toml:3: `name` is "t o y"; a name has letters, digits and `.`, `_`, `-`, `+`, and begins with a letter or digit: it is a folder
    STUDY.toml: `config` is missing; it names the training configuration that all cells begin from
    STUDY.toml:4: `seeds` of the study is [1, 1], expected a list such as `[1, 2, 3]` or a range such as `"1-8"`, each seed once, at most 1000
    STUDY.toml:5: `primary` of the study is "sen", expected "train" | "development" | "seen" | "unseen"; did you mean `seen`?
    STUDY.toml:16: unknown key `basline` of arm `GRPO`; did you mean `baseline`?
    STUDY.toml:27: `prompts` of panel `final` is "own_skil", expected "plain" | "library_skill" | "own_skill" | "oracle_skill" | "other_skill"; did you mean `own_skill`?
    STUDY.toml:28: `temperatures` of panel `final` is a list of numbers, none below 0
    STUDY.toml: 0 arms say `baseline = true`; one arm must, with which the others are compared
    STUDY.toml: there are no seeds; set `seeds = "1-8"` at the top, or `seeds` in every arm
    STUDY.toml: two of `[[arm]]` are called `GRPO`
    STUDY.toml:22: weights belong to the bases: name them in `start` of a base, and choose with `start` of an arm
    STUDY.toml:8: the study sets names, folders and seeds of its cells; of `[run]` only `set.run.threads` can be given
    STUDY.toml:29: `splits`, `temperatures`, `tasks` and `samples_per_task` stand in the panel itself
    "#);
}

#[test]
fn wrong_configurations_are_found_before_anything_runs() {
    let wrong = STUDY
        .replace(
            "seed.coefficient = 0.5",
            "seed.coeficient = 0.5\nalgorithm.dual_clip = 0.5",
        )
        .replace("world.max_steps = 20", "world.max_step = 20")
        .replace("start = \"plain\"", "start = \"plan\"");
    assert_snapshot!(problems(&wrong), @r#"
    STUDY.toml: arm `GRPO` begins from `plan`; base `A` has `analyst` and `plain`
    STUDY.toml:30: `algorithm.dual_clip` is `0.5`, expected number | "none", above 1
    STUDY.toml:29: unknown key `seed.coeficient`; did you mean `seed.coefficient`?
    STUDY.toml: arm `GRPO` begins from `plan`; base `B` has `analyst` and `plain`
    STUDY.toml:35: unknown key `world.max_step`; did you mean `world.max_steps`?
    "#);
    let elsewhere = STUDY.replace(
        "config = \"base.toml\"",
        "config = \"base.toml\"\nprimary = \"unseen\"",
    );
    assert_snapshot!(problems(&elsewhere), @r#"
    arm `GRPO` on base `A` is not evaluated on `unseen`, on which arms are compared; add it to `evaluation.splits`, or set `primary`
    arm `SEED` on base `A` is not evaluated on `unseen`, on which arms are compared; add it to `evaluation.splits`, or set `primary`
    arm `GRPO` on base `B` is not evaluated on `unseen`, on which arms are compared; add it to `evaluation.splits`, or set `primary`
    arm `SEED` on base `B` is not evaluated on `unseen`, on which arms are compared; add it to `evaluation.splits`, or set `primary`
    "#);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*|[\\[\\]a-z.=\"' \n0-9_-]{0,80}") {
        let _ = plan(&text);
    }

    #[test]
    fn every_cell_is_there_once_and_every_round_is_whole(counts in prop::collection::vec(1..6_u64, 1..4)) {
        let mut study = "name = \"x\"\nconfig = \"base.toml\"\n".to_owned();
        for (index, count) in counts.iter().enumerate() {
            let is_baseline = index == 0;
            let arm = ["[[arm]]\n", &format!("name = \"arm{index}\"\nbaseline = {is_baseline}\nseeds = \"1-{count}\"\n")];
            study.push_str(&arm.concat());
        }
        let cells = plan(&study).unwrap().cells();
        prop_assert_eq!(cells.len() as u64, counts.iter().sum::<u64>());
        // At every prefix no arm is two seeds ahead of one that still has some.
        for end in 0..=cells.len() {
            let done = |arm: usize| cells[..end].iter().filter(|cell| cell.id.arm == format!("arm{arm}")).count() as u64;
            for (left, left_count) in counts.iter().enumerate() {
                for right in 0..counts.len() {
                    prop_assert!(done(left) + 1 >= done(right) || done(left) == *left_count);
                }
            }
        }
    }
}
