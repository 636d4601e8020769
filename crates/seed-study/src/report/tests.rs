//! The report of a study whose numbers are known: files as runs leave them, made by formula.

use std::collections::BTreeMap;

use seed_env::Split;
use seed_train::compare::EvaluationRecord;
use seed_train::config::{EvaluationPrompt, Loaded, TrainConfig, to_toml};
use seed_train::evaluate::Evaluation;
use seed_train::prompted::PanelResult;
use seed_train::statistics::wilson;
use serde_json::json;

use super::*;
use crate::manifest::{GroupRecord, Manifest, StartRecord};
use crate::panel::{PanelRecord, Weights};
use crate::plan::{Contrast, Panel, cell_directory};

const TASKS: usize = 200;
const ITERATIONS: u64 = 6;

fn evaluation(success: f64) -> Evaluation {
    let successes = (success * TASKS as f64).round() as usize;
    Evaluation {
        episodes: TASKS,
        successes,
        success: wilson(successes, TASKS),
        macro_success: success,
        families: BTreeMap::new(),
        mean_steps: 10.0,
        valid_action_rate: 1.0,
        outcomes: BTreeMap::new(),
        temperature: 1.0,
        mean_score: None,
    }
}

/// Success after an iteration: `slope` per iteration from 0.2, and a little of the seed's own.
fn success(slope: f64, seed: u64, iteration: u64) -> f64 {
    0.2 + slope * iteration as f64 + 0.01 * (seed % 3) as f64
}

struct Arm {
    name: &'static str,
    slope: f64,
    cpu: f64,
    iterations: u64,
    /// What a skill in the prompt adds to success, where the arm is evaluated so.
    with_library: Option<f64>,
}

const GRPO: Arm = Arm {
    name: "GRPO",
    slope: 0.05,
    cpu: 10.0,
    iterations: ITERATIONS,
    with_library: None,
};

const ARMS: [Arm; 4] = [
    GRPO,
    Arm {
        name: "Vanilla",
        iterations: 0,
        ..GRPO
    },
    // Twice as fast an ascent at one and a half times the cost.
    Arm {
        name: "SEED",
        slope: 0.10,
        cpu: 15.0,
        ..GRPO
    },
    Arm {
        name: "same",
        with_library: Some(0.2),
        ..GRPO
    },
];

const BASES: [&str; 2] = ["A", "B"];

fn panel(weights: Vec<Weights>) -> Panel {
    Panel {
        name: "teacher".to_owned(),
        arms: None,
        splits: vec![Split::Seen],
        temperatures: vec![0.4],
        tasks: None,
        samples_per_task: 1,
        prompts: vec![EvaluationPrompt::Plain, EvaluationPrompt::OwnSkill],
        weights,
        settings: Vec::new(),
    }
}

fn panel_records(weights: Weights, plain: f64) -> Vec<PanelRecord> {
    let record = |prompt, success: f64, skill_share| PanelRecord {
        panel: "teacher".to_owned(),
        weights,
        temperature: 0.4,
        result: PanelResult {
            split: Split::Seen,
            prompt,
            skill_share,
            evaluation: evaluation(success),
        },
    };
    vec![
        record(EvaluationPrompt::Plain, plain, 0.0),
        record(EvaluationPrompt::OwnSkill, plain + 0.1, 0.9),
    ]
}

/// Writes a study of four arms, two bases and four seeds in which the last cell is not there and one is half done.
fn write_study(directory: &Path) {
    let text = "[world]\nname = \"household-studio\"\n[algorithm]\niterations = 6\n";
    let config = Loaded::<TrainConfig>::from_text("test", text, &[])
        .unwrap()
        .config;
    let groups = BASES
        .iter()
        .flat_map(|base| {
            ARMS.iter().map(|arm| GroupRecord {
                base: (*base).to_owned(),
                arm: arm.name.to_owned(),
                start: "base".to_owned(),
                seeds: vec![1, 2, 3, 4],
                config: to_toml(&config),
            })
        })
        .collect();
    let starts = BASES.map(|base| StartRecord {
        base: base.to_owned(),
        name: "base".to_owned(),
        path: PathBuf::from("models/x"),
        weights: "w".to_owned(),
        tasks: "t".to_owned(),
    });
    let plan = PlanRecord {
        name: "formula".to_owned(),
        baseline: "GRPO".to_owned(),
        primary: Split::Seen,
        bases: BASES.map(str::to_owned).to_vec(),
        arms: ARMS.iter().map(|arm| arm.name.to_owned()).collect(),
        contrasts: vec![Contrast {
            arm: "SEED".to_owned(),
            against: "same".to_owned(),
        }],
        groups,
        starts: starts.to_vec(),
        panels: vec![panel(vec![Weights::Initial, Weights::Final])],
    };
    for base in BASES {
        let folder = crate::state::start_directory(directory, base, "base");
        fs_err::create_dir_all(&folder).unwrap();
        seed_run::write_json_lines(
            &folder.join(crate::panel::PANELS),
            panel_records(Weights::Initial, 0.2),
        )
        .unwrap();
    }
    let cells = plan.cells();
    Manifest::for_tests(plan).write(directory).unwrap();
    for (index, cell) in cells.iter().enumerate() {
        let arm = ARMS.iter().find(|arm| arm.name == cell.arm).unwrap();
        if index + 1 == cells.len() {
            continue;
        }
        let iterations = if index + 2 == cells.len() {
            3
        } else {
            arm.iterations
        };
        write_cell(&cell_directory(directory, cell), arm, cell.seed, iterations);
    }
}

fn write_cell(folder: &Path, arm: &Arm, seed: u64, iterations: u64) {
    fs_err::create_dir_all(folder.join("skills")).unwrap();
    let record = json!({
        "id": "0", "name": arm.name, "seed": seed, "version": "1.2.3", "started_unix_seconds": 0, "command": [],
        "host": "h"
    });
    fs_err::write(folder.join("run.json"), record.to_string()).unwrap();
    let evaluations = (0..=iterations).flat_map(|iteration| {
        let plain = success(arm.slope, seed, iteration);
        let prompts = [
            Some((EvaluationPrompt::Plain, plain)),
            arm.with_library
                .map(|more| (EvaluationPrompt::LibrarySkill, plain + more)),
        ];
        prompts.into_iter().flatten().map(move |(prompt, success)| {
            let result = PanelResult {
                split: Split::Seen,
                prompt,
                skill_share: 1.0,
                evaluation: evaluation(success),
            };
            EvaluationRecord::new(iteration, iteration * 8, result)
        })
    });
    seed_run::write_json_lines(&folder.join("evaluations.jsonl"), evaluations).unwrap();
    let line =
        |step: u64, metrics: serde_json::Value| json!({ "schema": 1, "step": step, "metrics": metrics });
    let timings = (1..=iterations).map(|step| line(step, json!({ "timing/cpu_seconds": arm.cpu })));
    seed_run::write_json_lines(&folder.join("timings.jsonl"), timings).unwrap();
    let gap = |step: u64| {
        json!({
            "seed/gap_mean_success": 0.1 / step as f64, "seed/gap_mean_failure": -0.05,
            "seed/gate_mean_success": 0.625, "seed/gate_mean_failure": 0.375
        })
    };
    let metrics =
        (1..=iterations).map(|step| line(step, if arm.name == "SEED" { gap(step) } else { json!({}) }));
    seed_run::write_json_lines(&folder.join("metrics.jsonl"), metrics).unwrap();
    if iterations == arm.iterations {
        fs_err::write(folder.join("summary.json"), "{}").unwrap();
        let last = success(arm.slope, seed, iterations);
        seed_run::write_json_lines(&folder.join("panels.jsonl"), panel_records(Weights::Final, last))
            .unwrap();
    }
}

fn comparison<'a>(report: &'a Report, arm: &str, measure: &Measure) -> &'a Comparison {
    report
        .comparisons
        .iter()
        .find(|row| row.arm == arm && row.measure == *measure)
        .unwrap()
}

#[test]
fn the_numbers_are_those_of_the_formula() {
    let folder = tempfile::tempdir().unwrap();
    write_study(folder.path());
    let report = Report::write(folder.path(), &folder.path().join("report")).unwrap();
    let area = comparison(&report, "SEED", &Measure::AreaEpisodes { split: Split::Seen });
    // Straight lines from 0.2 with slopes .05 and .10 over six iterations: their means lie .15 apart.
    assert!((area.difference - 0.15).abs() < 1e-9, "{area:?}");
    assert_eq!(
        area.pairs, 7,
        "the half-done cell has no part, though its partner does"
    );
    // All seven differences are equal: only two of the 128 sign patterns reach their mean. One of the four comparisons has a
    // lower p-value.
    assert!((area.p_value - 2.0 / 128.0).abs() < 1e-12 && (area.corrected - 6.0 / 128.0).abs() < 1e-12);
    // At 60 seconds on processors the faster arm has had four of its iterations.
    let cpu = comparison(&report, "SEED", &Measure::AreaCpu { split: Split::Seen });
    assert!((cpu.difference - 0.05).abs() < 1e-9, "{cpu:?}");
    let same = comparison(&report, "same", &Measure::AreaEpisodes { split: Split::Seen });
    assert!(same.difference.abs() < 1e-12 && same.p_value == 1.0, "{same:?}");
    // What trains nothing stays where it is, however long the baseline goes on.
    for measure in [
        Measure::AreaEpisodes { split: Split::Seen },
        Measure::AreaCpu { split: Split::Seen },
    ] {
        let vanilla = comparison(&report, "Vanilla", &measure);
        assert!((vanilla.difference + 0.15).abs() < 1e-9, "{vanilla:?}");
        let with_skill = comparison(&report, "same, library_skill", &measure);
        assert!((with_skill.difference - 0.2).abs() < 1e-9, "{with_skill:?}");
    }
    let contrast = &report.contrasts[0];
    assert_eq!(
        (contrast.arm.as_str(), contrast.against.as_str()),
        ("SEED", "same")
    );
    assert!((contrast.difference - 0.15).abs() < 1e-9, "{contrast:?}");
    assert!(
        (contrast.corrected - 2.0 / 128.0).abs() < 1e-12,
        "the only one of its table"
    );
    // The budget is that of the cheapest trained arm; the dearer one is at .41 of it on average, not at its end.
    let budgets: Vec<f64> = report.cpu_budgets.iter().map(|budget| budget.end).collect();
    assert_eq!(budgets, [60.0, 60.0]);
    let area_cpu = |arm: &str| {
        let mut rows = report.curves.iter();
        let row = rows.find(|row| row.base == "A" && row.arm == arm).unwrap();
        row.area_cpu.as_ref().unwrap().mean
    };
    for (arm, expected) in [("GRPO", 0.36), ("SEED", 0.41), ("Vanilla", 0.21)] {
        assert!(
            (area_cpu(arm) - expected).abs() < 1e-9,
            "{arm}: {}",
            area_cpu(arm)
        );
    }
    let vanilla = report.curves.iter().find(|row| row.arm == "Vanilla").unwrap();
    assert!((vanilla.area.mean - 0.21).abs() < 1e-9, "{vanilla:?}");
    let reach = report
        .reaches
        .iter()
        .find(|reach| reach.base == "A" && reach.arm == "SEED")
        .unwrap();
    // Half of the 48 episodes, and three of four quarters of the 60 seconds.
    assert!((reach.episodes.at.unwrap() - 24.0).abs() < 1e-9, "{reach:?}");
    assert!(
        (reach.cpu_seconds.unwrap().at.unwrap() - 45.0).abs() < 1e-9,
        "{reach:?}"
    );
    let standing: Vec<String> = report.incomplete.iter().map(|row| row.cell.to_string()).collect();
    assert_eq!(standing, ["B/SEED/seed-4", "B/same/seed-4"]);
}

#[test]
fn the_text_says_everything_and_is_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    write_study(folder.path());
    let out = folder.path().join("report");
    let report = Report::write(folder.path(), &out).unwrap();
    insta::assert_snapshot!(
        "report",
        fs_err::read_to_string(Report::markdown_path(&out)).unwrap()
    );
    insta::assert_snapshot!("summary", report.summary());
    let contents = || -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs_err::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        files
            .map(|path| (path.clone(), fs_err::read(path).unwrap()))
            .collect()
    };
    let before = contents();
    assert_eq!(before.len(), 8, "{:?}", before.keys());
    fs_err::write(out.join("old.svg"), "of an earlier report").unwrap();
    Report::write(folder.path(), &out).unwrap();
    assert!(contents() == before, "another report of the same files");
}

#[test]
fn a_folder_without_a_study_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let message = Report::write(folder.path(), &folder.path().join("report"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("holds no study"), "{message}");
}
