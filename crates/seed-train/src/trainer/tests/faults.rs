//! Faults that were reported against other programs, each with the smallest input that shows it, named after the symptom.

use std::collections::BTreeSet;

use super::support::analyst::{Analyst, Answer, completion_text, number_of};
use super::*;

/// A skill of so many words that no two trajectories' contexts have one length.
fn skill(index: usize) -> String {
    vec!["look"; 1 + 3 * index].join(" ")
}

#[test]
fn teacher_sees_other_template() {
    let model = TinyModel::new();
    for context in ["world.context=windowed", "world.context=transcript"] {
        let overrides = [
            context,
            "rollout.temperature=0.7",
            "seed.extra_prompt_tokens=64",
            "model.context_length=600",
        ];
        let mut scored = Scored::new(&model, &overrides);
        scored.score(|index| Some(skill(index)));
        let policy = &scored.trainer.policy;
        let mut shifts = BTreeSet::new();
        for trained in &scored.sequences {
            let trajectory = &scored.trajectories[trained.trajectory];
            // The teacher's context from the record: the student's with the skill in its first prompt. Beside it, where the
            // sampled ids stand in either.
            let (mut context, mut places) = (Vec::new(), Vec::new());
            let mut student_places = Vec::new();
            let mut sampled = Vec::new();
            for segment in &trained.sequence.segments {
                let step = &trajectory.steps[segment.step];
                if context.is_empty() {
                    let text = scored
                        .trainer
                        .hindsight
                        .place(&step.prompt_text, &skill(trained.trajectory));
                    context.extend(policy.conversation.opening(&text));
                } else {
                    context.extend(&step.prompt_ids);
                }
                for (&id, position) in step.response_ids.iter().zip(segment.positions.clone()) {
                    places.push(context.len() as u32);
                    student_places.push(position);
                    context.push(id);
                    sampled.push(id);
                }
            }
            assert_eq!(sampled.len(), trained.old.len());
            for (token, &id) in sampled.iter().enumerate() {
                assert_eq!(trained.sequence.tokens[student_places[token]], id);
                assert_eq!(context[places[token] as usize], id);
            }
            let expected = policy
                .decoder
                .score(
                    &[TokenSequence {
                        tokens: &context,
                        scored: &places,
                    }],
                    0.7,
                )
                .unwrap()
                .remove(0)
                .log_probs;
            let found = trained.skill.as_ref().unwrap();
            assert_eq!(bits(found), bits(&expected));
            // One position beside, the numbers would be others.
            assert_ne!(expected[1..], expected[..expected.len() - 1]);
            assert_ne!(bits(found), bits(&trained.old));
            shifts.insert(context.len() - trained.sequence.tokens.len());
        }
        assert!(
            !shifts.contains(&0) && shifts.len() > 3,
            "the contexts differ in length: {shifts:?}"
        );
    }
}

#[test]
fn empty_skill_and_skill_longer_than_the_context() {
    let model = TinyModel::new();
    let analyst = Analyst::start(|prompt| {
        let words = if number_of(prompt).is_multiple_of(2) {
            0
        } else {
            10_000
        };
        Answer::Text(completion_text(&vec!["look"; words].join(" ")))
    });
    let play = |overrides: &[&str]| {
        let all = [
            &["seed.max_skill_words=20000", "endpoint.parse_attempts=1"],
            overrides,
        ]
        .concat();
        let config = support::config(&model.path(), &model.path(), &analyst.base_url, &all);
        let mut trainer = Trainer::new(config, Luck::world(), model.policy()).unwrap();
        let output = trainer.run_iteration(&mut Silent).unwrap();
        (output, trainer.policy.decoder.parameters().digest())
    };
    // A step's prompt keeps its end and is counted, an episode without a skill is left to GRPO.
    let windowed = ["world.context=windowed", "rollout.samples_per_task=6"];
    let (
        IterationOutput {
            metrics,
            trajectories,
            analyses,
        },
        _,
    ) = play(&windowed);
    let rows = |has_skill: bool| -> usize {
        let pairs = trajectories.iter().zip(&analyses);
        let of = pairs.filter(|(_, analysis)| analysis.skill.is_some() == has_skill);
        of.map(|(trajectory, _)| trajectory.steps.len()).sum()
    };
    let (long, empty) = (rows(true), rows(false));
    assert!(long > 0 && empty > 0, "{long} {empty}");
    let value = |name: &str| metrics.get(name).unwrap();
    assert_eq!(value("seed/prompts_truncated"), long as f64);
    assert_eq!(value("seed/row_share"), long as f64 / (long + empty) as f64);
    assert!(metrics.iter().all(|(_, value)| value.is_finite()));
    // A whole episode does not fit: nothing is distilled.
    let transcript = ["world.context=transcript", "rollout.samples_per_task=6"];
    let (output, digest) = play(&transcript);
    assert!(output.analyses.iter().any(|analysis| analysis.skill.is_some()));
    assert_eq!(output.metrics.get("seed/row_share"), Some(0.0));
    assert_eq!(
        digest,
        play(&[&transcript[..], &["algorithm.name=grpo"]].concat()).1
    );
}
