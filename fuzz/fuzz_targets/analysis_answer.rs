//! The reader of hindsight analyses in a model's answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use seed_hindsight::{Leniency, ParseOptions, SkillMode, parse_analysis};

fuzz_target!(|input: (u8, &str)| {
    let (choice, answer) = input;
    let mode = [
        SkillMode::EpisodeOnly,
        SkillMode::StepOnly,
        SkillMode::EpisodeStep,
    ][usize::from(choice % 3)];
    let options = if choice & 64 == 0 {
        ParseOptions::on_policy(mode)
    } else {
        ParseOptions::external(mode)
    };
    let options = ParseOptions {
        max_step_skills: usize::from(choice / 3 % 4),
        ..options
    };
    let Ok(mut analysis) = parse_analysis(answer, &options) else {
        return;
    };
    assert_eq!(analysis.episode_skill.is_some(), mode.has_episode_skill());
    assert!(analysis.step_skills.len() <= options.max_step_skills);
    // What was read, written as the policy learns to write it, reads as the same.
    analysis.leniency = Leniency::Strict;
    assert_eq!(parse_analysis(&analysis.to_json(), &options), Ok(analysis));
});
