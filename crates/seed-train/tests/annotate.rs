//! `seed annotate` on recorded episodes, against an analyst on loopback: what it is asked, what is kept of its answers,
//! and what the policy is shown of an episode that is too long for it.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

mod support;

use std::path::PathBuf;

use seed_env::Split;
use seed_hindsight::SftRecord;
use seed_random::RandomKey;
use seed_rollout::Trajectory;
use seed_run::read_json_lines;
use seed_train::annotate::{AnnotationReport, Annotator, annotate};
use seed_train::collect::collect;
use seed_train::config::TrainConfig;
use seed_train::events::Silent;
use seed_train::hindsight::{Hindsight, trajectory_text};
use support::TinyModel;
use support::analyst::{Analyst, Answer, completion_text, number_of, skill_for};
use support::luck::Luck;

/// Episodes of the tiny policy in the world of luck.
struct Recorded {
    model: TinyModel,
    folder: tempfile::TempDir,
    trajectories: Vec<Trajectory>,
}

impl Recorded {
    fn new() -> Self {
        let recorded = Self {
            model: TinyModel::new(),
            folder: tempfile::tempdir().unwrap(),
            trajectories: Vec::new(),
        };
        let (config, path) = (recorded.config("", &[]), recorded.path());
        collect(&config, &Luck::world(), Split::Train, 6, &path, &mut Silent).unwrap();
        let trajectories = read_json_lines(&path).unwrap().collect::<Result<_, _>>().unwrap();
        Self {
            trajectories,
            ..recorded
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("trajectories.jsonl")
    }

    fn config(&self, base_url: &str, overrides: &[&str]) -> TrainConfig {
        let base_url = if base_url.is_empty() {
            "http://127.0.0.1:1/v1"
        } else {
            base_url
        };
        support::config(self.folder.path(), &self.model.path(), base_url, overrides)
    }

    fn annotate(&self, config: &TrainConfig, annotator: Annotator) -> (AnnotationReport, Vec<SftRecord>) {
        let out = self.folder.path().join("skills.jsonl");
        let report = annotate(
            config,
            &*Luck::world(),
            &self.path(),
            &out,
            annotator,
            &mut Silent,
        )
        .unwrap();
        let records = read_json_lines(&out)
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        assert_eq!(report.records, records.len());
        assert_eq!(report.trajectories, self.trajectories.len());
        (report, records)
    }
}

#[test]
fn an_episode_too_long_for_the_policy_loses_its_middle() {
    let recorded = Recorded::new();
    let (policy, world) = (recorded.model.policy(), Luck::world());
    let analyst = Analyst::skilled();
    let whole = recorded.config(&analyst.base_url, &[]);
    let mut hindsight = Hindsight::new(&whole.seed);
    let longest = recorded
        .trajectories
        .iter()
        .max_by_key(|one| one.steps.len())
        .unwrap();
    assert_eq!(longest.steps.len(), 3);
    let text = trajectory_text(world.dialogue(), longest);
    let prompt = hindsight.prompt(&text);
    let tokens = policy.conversation.opening(&prompt).len();
    let fitted = |config: &TrainConfig| hindsight.fitted_prompt(&text, config, &policy.decoder, &policy);
    assert_eq!(fitted(&whole).text, prompt, "what fits is not touched");

    let limit = |tokens: usize| format!("seed.max_analysis_prompt_tokens={tokens}");
    let short = recorded.config(&analyst.base_url, &[&limit(tokens - 1)]);
    let found = fitted(&short);
    assert_eq!(found.steps_left_out, 1);
    let starts = [
        "Task: ",
        "Outcome: ",
        "0. ",
        "(1 step left out)",
        "2. ",
        "Write as JSON: ",
    ];
    assert_eq!(found.text.lines().count(), starts.len(), "{}", found.text);
    for (line, start) in found.text.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(policy.conversation.opening(&found.text).len() < tokens);

    // The policy is asked with that prompt; where not one step fits, ids are cut and counted.
    let mut analyse = |config: &TrainConfig| {
        let key = RandomKey::new(1);
        let trajectories = std::slice::from_ref(longest);
        let mut found = hindsight
            .analyse(
                config,
                &policy.decoder,
                &policy,
                world.dialogue(),
                trajectories,
                0,
                key,
                &mut |_, _| (),
            )
            .unwrap();
        let analysis = found.remove(0);
        (analysis.steps_left_out, analysis.prompt_tokens_cut)
    };
    assert_eq!(analyse(&whole), (0, 0));
    assert_eq!(analyse(&short), (1, 0));
    let (left_out, cut) = analyse(&recorded.config(&analyst.base_url, &[&limit(10)]));
    assert!(left_out == 2 && cut > 0, "{left_out} {cut}");

    // An endpoint reads the whole episode; the record holds what the policy will be asked.
    let before = recorded.annotate(&whole, Annotator::Endpoint).1;
    let after = recorded.annotate(&short, Annotator::Endpoint).1;
    assert_eq!(before.len(), recorded.trajectories.len());
    let seen = analyst.prompts();
    let mut shortened = 0;
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(
            seen.iter().filter(|prompt| **prompt == before.prompt).count() % 2,
            0,
            "asked twice"
        );
        assert_eq!(before.response, after.response);
        shortened += usize::from(before.prompt != after.prompt);
        assert_eq!(
            before.prompt != after.prompt,
            after.prompt.contains(" left out)\n")
        );
    }
    assert!(shortened > 0 && shortened < before.len(), "{shortened}");
    assert_eq!(seen.len(), 2 * before.len());
}

#[test]
fn an_endpoint_is_asked_again_once_and_its_skills_are_checked() {
    let recorded = Recorded::new();
    let is_repair = |prompt: &str| prompt.contains("\n\nYour previous answer could not be used: ");
    // By episode: a skill; one that is too short, then a skill; nonsense both times; an error; nonsense, then an error.
    let kind = |prompt: &str| number_of(prompt.split("\n\nYour previous").next().unwrap().trim_end()) % 5;
    let analyst = Analyst::start(move |prompt| match (kind(prompt), is_repair(prompt)) {
        (0, _) | (1, true) => Answer::Text(completion_text(&skill_for(prompt))),
        (1, false) => Answer::Text(completion_text("look around")),
        (2, _) | (4, false) => Answer::Text("no object here".to_owned()),
        _ => Answer::Status(500),
    });
    let config = recorded.config(&analyst.base_url, &[]);
    let hindsight = Hindsight::new(&config.seed);
    let world = Luck::world();
    let kinds: Vec<u64> = recorded
        .trajectories
        .iter()
        .map(|trajectory| {
            kind(
                hindsight
                    .prompt(&trajectory_text(world.dialogue(), trajectory))
                    .trim_end(),
            )
        })
        .collect();
    let count = |wanted: &[u64]| kinds.iter().filter(|kind| wanted.contains(kind)).count();
    assert!((0..5).all(|kind| count(&[kind]) > 0), "{kinds:?}");

    let (report, records) = recorded.annotate(&config, Annotator::Endpoint);
    assert_eq!(records.len(), count(&[0, 1]));
    let left_out = [("failed", count(&[3, 4])), ("no_object", count(&[2]))];
    assert_eq!(
        report.left_out,
        left_out.map(|(name, count)| (name.to_owned(), count)).into()
    );
    let prompts = analyst.prompts();
    let repairs: Vec<&String> = prompts.iter().filter(|prompt| is_repair(prompt)).collect();
    assert_eq!(repairs.len(), count(&[1, 2, 4]), "once for each answer of no use");
    assert_eq!(prompts.len(), kinds.len() + repairs.len());
    for repair in repairs {
        let (shown, fault) = match kind(repair) {
            1 => (
                "look around",
                "`episode_skill` has 2 words; at least 5 are needed",
            ),
            _ => ("no object here", "the answer holds no JSON object"),
        };
        assert!(repair.contains(shown) && repair.contains(fault), "{repair}");
    }
    // A record holds the first prompt, not the one that asks again.
    assert!(records.iter().all(|record| !is_repair(&record.prompt)));

    let once = recorded.config(&analyst.base_url, &["endpoint.parse_attempts=1"]);
    let (report, records) = recorded.annotate(&once, Annotator::Endpoint);
    assert_eq!(records.len(), count(&[0]));
    assert_eq!(report.left_out["few_words"], count(&[1]));
    assert_eq!(report.left_out["no_object"], count(&[2, 4]));
    assert_eq!(analyst.prompts().len(), prompts.len() + kinds.len());
}

#[test]
fn the_filters_of_skills_refuse_records() {
    let recorded = Recorded::new();
    let skill = "Go to desk 1, then look at everything in the room. Nothing is in drawer 7.";
    let analyst = Analyst::start(move |_| Answer::Text(completion_text(skill)));
    let annotated = |overrides: &[&str]| {
        let config = recorded.config(&analyst.base_url, overrides);
        recorded.annotate(&config, Annotator::Endpoint)
    };
    let total = recorded.trajectories.len();
    let (report, records) = annotated(&[]);
    assert_eq!((records.len(), report.left_out.len()), (total, 0));
    assert!(
        records
            .iter()
            .all(|record| record.response == completion_text(skill))
    );
    // Every episode shows the desk, none the drawer.
    let (report, records) = annotated(&["seed.refuse_object_names=true"]);
    assert_eq!((records.len(), report.left_out["refused"]), (0, total));
    let (_, records) = annotated(&["seed.grounding_filter=true"]);
    assert!(
        records
            .iter()
            .all(|record| record.response.ends_with("in the room.\"}"))
    );
    assert_eq!(records.len(), total);
    assert_eq!(
        annotated(&["seed.grounding_filter=true", "seed.min_skill_words=12"])
            .1
            .len(),
        0
    );
    // "desk 1", not more, stands in every transcript.
    assert_eq!(annotated(&["seed.max_copied_words=8"]).1.len(), total);
    assert_eq!(annotated(&["seed.max_copied_words=1"]).1.len(), 0);
    // A policy that was never taught to write skills writes none.
    let config = recorded.config(&analyst.base_url, &[]);
    let (report, records) = recorded.annotate(&config, Annotator::Policy);
    assert_eq!(
        (records.len(), report.left_out.values().sum::<usize>()),
        (0, total)
    );
    assert!(
        !report.left_out.contains_key("few_words"),
        "the policy's own path needs no five words"
    );
}
