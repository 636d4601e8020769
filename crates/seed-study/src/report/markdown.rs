//! The report as Markdown. Shares are in percent, differences in points.

use std::fmt::Write as _;

use seed_train::config::EvaluationPrompt;
use seed_train::statistics::Interval;

use super::hindsight::GAP_METRICS;
use super::results::{Comparison, Estimate, Measure, PanelSummary, Reached};
use super::{Incomplete, Report};
use crate::panel::Weights;
use crate::state::Status;
use crate::table::aligned;

/// Incomplete cells that are listed one by one; of more, the rest is counted.
const LISTED: usize = 40;

impl Report {
    /// The whole text.
    pub fn markdown(&self) -> String {
        let parts = [
            self.heading(),
            self.missing(),
            self.against_the_baseline(),
            self.between_arms(),
            self.curves(),
            self.reaches(),
            self.panels(),
            self.with_skills(),
            self.skills(),
            self.gaps(),
            self.pictures(),
        ];
        let mut text = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("\n");
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// The short form for a terminal: what is missing, and arms against the baseline.
    pub fn summary(&self) -> String {
        let rows = rows_of(&self.comparisons);
        let mut text = format!(
            "{} of {} cells complete; baseline `{}`\n",
            self.cells - self.incomplete.len(),
            self.cells,
            self.baseline
        );
        if rows.is_empty() {
            text.push_str("no arm has a pair of cells with the baseline yet\n");
        } else {
            text.push('\n');
            let mut all = vec![COMPARISON.map(str::to_lowercase).to_vec()];
            all.extend(rows);
            all.extend(rows_of(&self.contrasts));
            text.push_str(&aligned(&all, 3));
        }
        text
    }

    fn heading(&self) -> String {
        let plan = &self.plan;
        let bases = plan.bases.join(", ");
        let digests: Vec<String> = self
            .plan_digests
            .iter()
            .map(|digest| format!("`{}`", digest.get(..16).unwrap_or(digest)))
            .collect();
        let versions: Vec<String> = self
            .versions
            .iter()
            .map(|(version, cells)| format!("{version} ({cells} cells)"))
            .collect();
        let mut text = format!(
            "# Study {}\n\n{} arms, {} bases ({bases}), {} cells. Baseline: {}. Primary measure: {}. Plan: {}.",
            self.name,
            plan.arms.len(),
            plan.bases.len(),
            self.cells,
            self.baseline,
            Measure::AreaEpisodes { split: plan.primary }.name(),
            digests.join(", then "),
        );
        if !versions.is_empty() {
            let _ = write!(text, " Version: {}.", versions.join(", "));
        }
        text.push('\n');
        text
    }

    fn missing(&self) -> String {
        let mut text = "## Cells\n\n".to_owned();
        if self.incomplete.is_empty() {
            let _ = writeln!(text, "All {} cells are complete.", self.cells);
            return text;
        }
        let _ = writeln!(
            text,
            "**{} of {} cells are not complete.** Cells that have not finished training are in no table; `panels` means that \
             only panels are missing.\n",
            self.incomplete.len(),
            self.cells
        );
        let rows: Vec<Vec<String>> = self
            .incomplete
            .iter()
            .take(LISTED)
            .map(|Incomplete { cell, status }| vec![cell.to_string(), standing(status)])
            .collect();
        text.push_str(&table(&["Cell", "Is"], &rows));
        if self.incomplete.len() > LISTED {
            let _ = writeln!(text, "\nAnd {} more.", self.incomplete.len() - LISTED);
        }
        text
    }

    fn against_the_baseline(&self) -> String {
        let rows = rows_of(&self.comparisons);
        if rows.is_empty() {
            return String::new();
        }
        format!(
            "## Arms against {}\n\nOn pairs of cells with equal base and seed. Differences are in points, with 95 % percentile \
             bootstrap intervals over pairs, drawn within bases. p is two-sided, by flipping the signs of the differences; \
             Holm corrects it over the arms of one measure. The first measure is the primary one. Areas are mean heights of \
             the success curve, on each pair over what both of its curves cover; an arm that trains nothing stays at its \
             height. An arm with a prompt behind its name was evaluated with a skill in the prompt, the baseline with none.\n\n{}",
            self.baseline,
            table(&COMPARISON, &rows)
        )
    }

    fn between_arms(&self) -> String {
        let rows = rows_of(&self.contrasts);
        if rows.is_empty() {
            return String::new();
        }
        format!(
            "## Between arms\n\nComparisons that the study asks for besides those with the baseline, in the same way; Holm \
             corrects over these.\n\n{}",
            table(&COMPARISON, &rows)
        )
    }

    fn curves(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .curves
            .iter()
            .map(|row| {
                vec![
                    row.base.clone(),
                    row.arm.clone(),
                    row.split.name().to_owned(),
                    row.prompt.to_string(),
                    row.last.cells.to_string(),
                    format!("{:.0}", row.episodes),
                    row.cpu_seconds
                        .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0}")),
                    percent(row.first),
                    estimate(&row.last),
                    percent(row.best),
                    estimate(&row.area),
                    row.area_cpu.as_ref().map_or_else(|| "-".to_owned(), estimate),
                ]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let head = [
            "Base",
            "Arm",
            "Panel",
            "Prompt",
            "Cells",
            "Episodes",
            "CPU s",
            "First",
            "Last",
            "Best",
            "Area",
            "Area, equal CPU",
        ];
        let budgets: Vec<String> = self
            .cpu_budgets
            .iter()
            .map(|budget| format!("{:.0} s on {}", budget.end, budget.base))
            .collect();
        let budgets = if budgets.is_empty() {
            String::new()
        } else {
            format!(
                " Area is over training episodes, each arm to its own end; the last column is over CPU seconds, all arms of a base \
                 to the budget of the one that used least: {}.",
                budgets.join(", ")
            )
        };
        format!(
            "## Learning curves\n\nSuccess in percent on the panels of training, means over cells with 95 % bootstrap intervals \
             over cells. CPU seconds are those of training without evaluation. Best is the highest evaluation of each cell, \
             chosen after the fact.{budgets}\n\n{}",
            table(&head, &rows)
        )
    }

    fn reaches(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .reaches
            .iter()
            .map(|row| {
                let share = |reached: &Reached, all: f64| {
                    reached
                        .at
                        .filter(|_| all > 0.0)
                        .map_or_else(String::new, |at| format!("{:.0} %", at / all * 100.0))
                };
                let cpu = row.cpu_seconds.zip(row.baseline_cpu);
                vec![
                    row.base.clone(),
                    row.arm.clone(),
                    percent(row.level),
                    reached(&row.episodes),
                    share(&row.episodes, row.baseline_episodes),
                    cpu.map_or_else(|| "-".to_owned(), |(found, _)| reached(&found)),
                    cpu.map_or_else(String::new, |(found, all)| share(&found, all)),
                ]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let head = ["Base", "Arm", "Level", "Episodes", "of all", "CPU s", "of all"];
        format!(
            "## How soon the level of {} is reached\n\nThe level is the mean success of {} at its last evaluation on the primary \
             panel. An arm reaches it where its mean curve is there first, on the line between evaluations; shares are of \
             what {} was trained for. Intervals are over resampled seeds, ∞ where the level is not reached in that many.\n\n{}",
            self.baseline,
            self.baseline,
            self.baseline,
            table(&head, &rows)
        )
    }

    /// Plain play of the final weights, by base where there are several.
    fn panels(&self) -> String {
        let finals: Vec<&PanelSummary> = self
            .panels
            .iter()
            .filter(|row| row.weights == Weights::Final && row.prompt.is_plain())
            .collect();
        let by_base = finals.iter().any(|row| row.base.is_some());
        // A mean over all bases says something only of an arm that was on more than one.
        let is_shown = |row: &PanelSummary| {
            let of_bases = finals.iter().filter(|other| other.base.is_some());
            row.base.is_some() || !by_base || of_bases.filter(|other| is_same(other, row)).count() > 1
        };
        let rows: Vec<Vec<String>> = finals
            .iter()
            .filter(|row| is_shown(row))
            .map(|row| {
                let base = by_base.then(|| row.base.clone().unwrap_or_else(|| "all".to_owned()));
                let mut cells = vec![row.panel.clone(), row.arm.clone()];
                cells.extend(base);
                cells.extend([
                    row.split.name().to_owned(),
                    row.temperature.to_string(),
                    row.success.cells.to_string(),
                    estimate(&row.success),
                    percent(row.macro_success),
                ]);
                cells
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let mut head = vec!["Panel", "Arm"];
        head.extend(by_base.then_some("Base"));
        head.extend(["Split", "T", "Cells", "Success", "Macro"]);
        format!(
            "## Finals\n\nThe weights at the end of training, with the plain prompt: success in percent, mean over cells with \
             95 % bootstrap intervals over them, and the unweighted mean over task families.\n\n{}",
            table(&head, &rows)
        )
    }

    /// One row per panel, weights, arm, split and temperature; one column per prompt.
    fn with_skills(&self) -> String {
        let panels: Vec<&PanelSummary> = self.panels.iter().filter(|row| row.base.is_none()).collect();
        let prompts: Vec<EvaluationPrompt> = EvaluationPrompt::all()
            .filter(|prompt| panels.iter().any(|row| row.prompt == *prompt))
            .collect();
        let mut rows = Vec::new();
        let mut shown: Vec<&PanelSummary> = Vec::new();
        for row in panels.iter().copied() {
            if shown.iter().any(|other| is_same(other, row)) {
                continue;
            }
            let all: Vec<&PanelSummary> = panels
                .iter()
                .copied()
                .filter(|other| is_same(other, row))
                .collect();
            if !all.iter().any(|other| !other.prompt.is_plain()) {
                continue;
            }
            shown.push(row);
            let mut cells = vec![
                row.panel.clone(),
                row.weights.name().to_owned(),
                row.arm.clone(),
                row.split.name().to_owned(),
                row.temperature.to_string(),
            ];
            for prompt in &prompts {
                let found = all.iter().find(|other| other.prompt == *prompt);
                cells.push(found.map_or_else(|| "-".to_owned(), |other| estimate(&other.success)));
            }
            let own = all
                .iter()
                .find(|other| other.prompt == EvaluationPrompt::OwnSkill);
            cells.push(own.map_or_else(|| "-".to_owned(), |other| percent(other.skill_share)));
            rows.push(cells);
        }
        if rows.is_empty() {
            return String::new();
        }
        let mut head = vec!["Panel", "Weights", "Arm", "Split", "T"];
        head.extend(prompts.iter().map(|prompt| heading(*prompt)));
        head.push("Own written");
        format!(
            "## With a skill in the prompt\n\nHow strong the weights are as their own teacher, before training and after it: success \
             in percent with the plain prompt, with the static library's skill, with the one they wrote about their own plain \
             episode of the task, with that of a perfect episode of it, and with that of another task, as far as these were \
             played. The last column is the share of episodes for which they wrote a skill at all. Rows of initial weights have the name of the weights.\n\n{}",
            table(&head, &rows)
        )
    }

    fn skills(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .analysers
            .iter()
            .map(|row| {
                let judged = |share: f64| {
                    if row.judged == 0 {
                        "-".to_owned()
                    } else {
                        percent(share)
                    }
                };
                let optional = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
                vec![
                    row.arm.clone(),
                    row.part.name().to_owned(),
                    row.analyses.to_string(),
                    optional(row.parsed),
                    percent(row.accepted),
                    judged(row.procedure),
                    judged(row.place),
                    optional(row.place_success),
                    optional(row.place_failure),
                    percent(row.copied),
                    optional(row.duplicates),
                    format!("{:.1}", row.words),
                ]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let head = [
            "Arm",
            "Of training",
            "Analyses",
            "Parsed",
            "Accepted",
            "Right procedure",
            "Right place",
            "after success",
            "after failure",
            "Copied",
            "Duplicates",
            "Words",
        ];
        let mut text = format!(
            "## Skills\n\nOf the skills that runs kept, and that episodes were scored with: where an arm gives an episode another's \
             skill, that one is judged. A procedure is right when it names the task's object and target, its \
             treatment and no other, and that two objects are wanted where they are. A place is right when the first place to \
             look holds an object of the class asked for at the start. Copied is the share of word runs that stand in the \
             transcript.\n\n{}",
            table(&head, &rows)
        );
        for reason in &self.unjudged {
            let _ = writeln!(text, "\nNot all skills could be judged: {reason}");
        }
        text
    }

    fn gaps(&self) -> String {
        let columns: Vec<(&str, &str)> = GAP_METRICS
            .into_iter()
            .filter(|(name, _)| self.gaps.iter().any(|row| row.values.contains_key(*name)))
            .collect();
        if columns.is_empty() {
            return String::new();
        }
        let rows: Vec<Vec<String>> = self
            .gaps
            .iter()
            .map(|row| {
                let mut cells = vec![row.arm.clone(), row.part.name().to_owned()];
                cells.extend(columns.iter().map(|(name, _)| {
                    let value = row.values.get(*name);
                    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
                }));
                cells
            })
            .collect();
        let head: Vec<&str> = ["Arm", "Of training"]
            .into_iter()
            .chain(columns.iter().map(|(_, heading)| *heading))
            .collect();
        format!(
            "## Gaps and gates\n\nMeans over iterations and cells. The gap is the log-prob under the skill prompt less the plain \
             one, in nats, before the update; the gate is taken during the update. Tokens are shares of response tokens under \
             the distillation mask.\n\n{}",
            table(&head, &rows)
        )
    }

    fn pictures(&self) -> String {
        if self.pictures.is_empty() {
            return String::new();
        }
        let lines: Vec<String> = self
            .pictures
            .iter()
            .map(|(file, title)| format!("![{title}]({file})\n"))
            .collect();
        format!("## Pictures\n\n{}", lines.join("\n"))
    }
}

/// Columns of the comparison.
const COMPARISON: [&str; 9] = [
    "Measure",
    "Arm",
    "Against",
    "Pairs",
    "Other's",
    "Arm's",
    "Difference",
    "p",
    "p (Holm)",
];

fn rows_of(comparisons: &[Comparison]) -> Vec<Vec<String>> {
    comparisons
        .iter()
        .map(|row| {
            vec![
                row.measure.name(),
                row.arm.clone(),
                row.against.clone(),
                row.pairs.to_string(),
                percent(row.against_mean),
                percent(row.arm_mean),
                row.interval
                    .map_or_else(|| points(row.difference), |interval| points_interval(&interval)),
                p_value(row.p_value),
                p_value(row.corrected),
            ]
        })
        .collect()
}

/// Whether two rows differ in prompt and base at most.
fn is_same(left: &PanelSummary, right: &PanelSummary) -> bool {
    left.panel == right.panel
        && left.weights == right.weights
        && left.arm == right.arm
        && left.split == right.split
        && left.temperature == right.temperature
}

fn standing(status: &Status) -> String {
    match status {
        Status::Open => "not begun".to_owned(),
        Status::Begun { iteration } => format!("at iteration {iteration}"),
        Status::Failed { iteration, message } => {
            format!(
                "failed, at iteration {iteration}: {}",
                message.replace('|', "\\|")
            )
        }
        Status::Trained => "panels".to_owned(),
        Status::Done => "complete".to_owned(),
    }
}

fn table<H: AsRef<str>>(head: &[H], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head.iter().map(AsRef::as_ref).collect());
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

fn percent(value: f64) -> String {
    format!("{:.1}", value * 100.0)
}

fn estimate(value: &Estimate) -> String {
    match value.interval {
        None => percent(value.mean),
        Some(Interval { low, high, .. }) => {
            format!("{} [{}, {}]", percent(value.mean), percent(low), percent(high))
        }
    }
}

fn points(value: f64) -> String {
    format!("{:+.1}", value * 100.0)
}

fn points_interval(interval: &Interval) -> String {
    format!(
        "{} [{}, {}]",
        points(interval.value),
        points(interval.low),
        points(interval.high)
    )
}

fn p_value(value: f64) -> String {
    if value < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{value:.3}")
    }
}

fn reached(reached: &Reached) -> String {
    let number = |at: Option<f64>| at.map_or_else(|| "∞".to_owned(), |at| format!("{at:.0}"));
    match (reached.at, reached.low) {
        (None, None) => "not reached".to_owned(),
        (None, low) => format!("not reached [{}, {}]", number(low), number(reached.high)),
        (at, None) => number(at),
        (at, low) => format!("{} [{}, {}]", number(at), number(low), number(reached.high)),
    }
}

/// The heading of a column.
fn heading(prompt: EvaluationPrompt) -> &'static str {
    match prompt {
        EvaluationPrompt::Plain => "Plain",
        EvaluationPrompt::LibrarySkill => "Library skill",
        EvaluationPrompt::OwnSkill => "Own skill",
        EvaluationPrompt::OracleSkill => "Oracle skill",
        EvaluationPrompt::OtherSkill => "Other skill",
    }
}
