//! Every metric a run may report. A name that is not here is refused when it is recorded.

use super::registry::MetricDefinition;

const fn metric(
    name: &'static str,
    unit: &'static str,
    numerator: &'static str,
    denominator: &'static str,
    mask: &'static str,
    meaning: &'static str,
) -> MetricDefinition {
    MetricDefinition {
        name,
        unit,
        numerator,
        denominator,
        mask,
        meaning,
        is_wall_clock: false,
        verl: "",
        trl: "",
    }
}

/// A sum of seconds in one phase.
const fn seconds(name: &'static str, meaning: &'static str) -> MetricDefinition {
    let mut definition = metric(name, "s", "wall-clock seconds", "", "the iteration", meaning);
    definition.is_wall_clock = true;
    definition
}

/// A quantity that depends on the machine.
const fn machine(
    name: &'static str,
    unit: &'static str,
    numerator: &'static str,
    denominator: &'static str,
    meaning: &'static str,
) -> MetricDefinition {
    let mut definition = metric(name, unit, numerator, denominator, "the iteration", meaning);
    definition.is_wall_clock = true;
    definition
}

impl MetricDefinition {
    const fn verl(mut self, name: &'static str) -> Self {
        self.verl = name;
        self
    }

    const fn trl(mut self, name: &'static str) -> Self {
        self.trl = name;
        self
    }
}

const TRAINED: &str = "episodes that train";
const ALL_EPISODES: &str = "all episodes of the iteration";
const ROWS: &str = "rows that train";
const ALL_ROWS: &str = "all rows of the iteration";
const RESPONSE: &str = "response tokens of rows that train";
const GATED: &str = "response tokens under the distillation mask";
const ANALYSED: &str = "episodes sent to the analyser";
const PANEL: &str = "the split's fixed panel";
const ITERATION: &str = "the iteration, without evaluation";
const UPDATES: &str = "the iteration's optimiser steps";

/// In the order of the documentation: one group per first part of the name.
#[rustfmt::skip] // One metric a paragraph: rustfmt would give every argument a line of its own.
pub(crate) const METRICS: &[MetricDefinition] = &[
    metric("reward/mean", "reward", "sum of episode returns", "episodes", TRAINED,
        "Mean return before penalties.").verl("critic/rewards/mean").trl("reward"),
    metric("reward/deviation", "reward", "standard deviation of episode returns", "", TRAINED,
        "Spread of returns.").trl("reward_std"),
    metric("reward/maximum", "reward", "largest episode return", "", TRAINED, "Best return.")
        .verl("critic/rewards/max"),
    metric("reward/minimum", "reward", "smallest episode return", "", TRAINED, "Worst return.")
        .verl("critic/rewards/min"),
    metric("success/rate", "share", "episodes that reached the goal", "episodes", TRAINED,
        "Success while sampling for training.").verl("episode/success_rate"),
    metric("score/mean", "share", "sum of the results' grades", "episodes", TRAINED,
        "Grade while sampling, in worlds that grade results between lost and won."),
    metric("group/tied_share", "share", "groups whose scores are all equal", "groups", TRAINED,
        "Groups that give GRPO no direction.").trl("frac_reward_zero_std"),
    metric("group/all_success_share", "share", "groups with every episode successful", "groups", TRAINED,
        "Tasks already solved."),
    metric("group/all_failure_share", "share", "groups with no episode successful", "groups", TRAINED,
        "Tasks out of reach."),
    metric("episode/count", "episodes", "episodes", "", ALL_EPISODES, "Episodes sampled."),
    metric("episode/total", "episodes", "episodes since the run began", "", ALL_EPISODES,
        "The sample axis of learning curves."),
    metric("episode/excluded", "episodes",
        "episodes that ended in an error of the environment or the engine, a time-out or a cancellation", "", ALL_EPISODES,
        "Episodes that are never trained."),
    metric("episode/outcome/{outcome}", "share", "episodes with this outcome", "episodes", ALL_EPISODES,
        "How episodes end."),
    metric("episode/family/{family}/success_rate", "share", "successful episodes of the family",
        "episodes of the family", TRAINED, "Success per task family while sampling."),
    metric("episode/steps_mean", "steps", "environment steps", "episodes", TRAINED, "Length of episodes.")
        .verl("num_turns/mean"),
    metric("episode/steps_maximum", "steps", "longest episode", "", TRAINED, "Longest episode.")
        .verl("num_turns/max"),
    metric("episode/steps_minimum", "steps", "shortest episode", "", TRAINED, "Shortest episode.")
        .verl("num_turns/min"),
    metric("action/valid_share", "share", "responses that obeyed the action format", "responses", TRAINED,
        "Whether the format is kept.").verl("episode/valid_action_ratio"),
    metric("response/tokens_mean", "tokens", "response tokens", "responses", TRAINED, "Length of responses.")
        .verl("response_length/mean").trl("completions/mean_length"),
    metric("response/tokens_maximum", "tokens", "longest response", "", TRAINED, "Longest response.")
        .verl("response_length/max").trl("completions/max_length"),
    metric("response/tokens_minimum", "tokens", "shortest response", "", TRAINED, "Shortest response.")
        .verl("response_length/min").trl("completions/min_length"),
    metric("response/truncated_share", "share", "responses cut at the token limit", "responses", TRAINED,
        "Responses that did not end by themselves.").verl("response_length/clip_ratio")
        .trl("completions/clipped_ratio"),
    metric("response/tokens_total", "tokens", "sampled tokens since the run began", "", ALL_EPISODES,
        "Sampling effort.").trl("num_tokens"),
    metric("prompt/tokens_mean", "tokens", "prompt tokens", "rows", ROWS, "Length of prompts.")
        .verl("prompt_length/mean"),
    metric("prompt/tokens_maximum", "tokens", "longest prompt", "", ROWS, "Longest prompt.")
        .verl("prompt_length/max"),
    metric("prompt/truncated", "rows", "rows whose prompt was cut", "", ROWS, "Prompts that did not fit."),
    metric("advantage/mean", "1", "sum of token advantages", "tokens", RESPONSE, "Should be near zero.")
        .verl("critic/advantages/mean"),
    metric("advantage/maximum", "1", "largest token advantage", "", RESPONSE, "Strongest encouragement.")
        .verl("critic/advantages/max"),
    metric("advantage/minimum", "1", "smallest token advantage", "", RESPONSE, "Strongest discouragement.")
        .verl("critic/advantages/min"),
    metric("policy/loss", "1", "sum of clipped policy losses", "by the aggregation", RESPONSE,
        "The policy term, before its coefficient.").verl("actor/pg_loss").trl("policy_loss"),
    metric("policy/kl", "nats", "sum of k3 estimates of the divergence to the initial policy",
        "by the aggregation", RESPONSE, "Distance from the start.").verl("actor/kl_loss").trl("kl"),
    metric("policy/kl_to_old", "nats", "sum of old minus new log-prob", "tokens", RESPONSE,
        "How far one iteration's update moved.").verl("actor/ppo_kl"),
    metric("policy/clip_fraction", "share", "tokens whose loss is clipped", "tokens", RESPONSE,
        "Tokens that left the trust region.").verl("actor/pg_clipfrac").trl("clip_ratio/region_mean"),
    metric("policy/clip_fraction_low", "share", "tokens clipped from below", "tokens", RESPONSE,
        "Clipped with negative advantage.").trl("clip_ratio/low_mean"),
    metric("policy/clip_fraction_high", "share", "tokens clipped from above", "tokens", RESPONSE,
        "Clipped with positive advantage.").trl("clip_ratio/high_mean"),
    metric("policy/dual_clip_fraction", "share", "tokens bounded by the dual clip", "tokens", RESPONSE,
        "Runaway ratios with negative advantage.").verl("actor/pg_clipfrac_lower"),
    metric("policy/ratio_maximum", "1", "largest probability ratio", "", RESPONSE,
        "Largest step of one token."),
    metric("policy/entropy", "nats", "sum of token entropies", "tokens", RESPONSE,
        "How undecided the policy is.").verl("actor/entropy").trl("entropy"),
    metric("policy/gradient_norm", "1", "global norm before clipping", "optimiser steps", UPDATES,
        "Mean over the steps.").verl("actor/grad_norm").trl("grad_norm"),
    metric("policy/learning_rate", "1", "learning rate of the last step", "", UPDATES, "As scheduled.")
        .verl("actor/lr").trl("learning_rate"),
    metric("policy/updates", "steps", "optimiser steps taken", "", UPDATES, "Steps of this iteration."),
    metric("policy/skipped_updates", "steps", "optimiser steps left out", "", UPDATES,
        "Nothing to learn from, or a gradient that is not finite."),
    metric("policy/rows", "rows", "rows that train", "", ROWS, "Size of the batch."),
    metric("policy/tokens", "tokens", "response tokens that train", "", RESPONSE,
        "Size of the batch in tokens."),
    metric("self_check/rows", "rows", "rows scored again before the update", "", ALL_ROWS,
        "Rows found to have the recorded log-probs: bit for bit, on other devices than `cpu` in the mean."),
    metric("self_check/tokens", "tokens", "response tokens of the rows scored again", "", ALL_ROWS,
        "Log-probs compared."),
    metric("self_check/mismatch_mean", "nats", "sum of differences, without their signs", "response tokens", ALL_ROWS,
        "How far the recorded log-probs are from those of scoring; on other devices than `cpu` alone."),
    metric("self_check/mismatch_maximum", "nats", "largest difference of one token", "", ALL_ROWS,
        "The same for the token furthest off."),
    metric("engine/compared_tokens", "tokens", "response tokens scored again", "", ALL_ROWS,
        "Log-probs of an external engine that were compared with the policy's."),
    metric("engine/log_prob_difference_mean", "nats", "sum of absolute differences", "response tokens scored again",
        ALL_ROWS, "How far the external engine's log-probs are from the policy's."),
    metric("engine/log_prob_difference_maximum", "nats", "largest absolute difference", "", ALL_ROWS,
        "The token on which they agree least."),
    metric("engine/over_limit_share", "share", "tokens that differ by more than the mean may",
        "response tokens scored again", ALL_ROWS, "Whether few tokens differ much or many a little."),
    metric("engine/divergence", "nats", "sum of the k3 estimate of KL(engine to policy)", "response tokens scored again",
        ALL_ROWS, "How far what sampled is from what is trained."),
    metric("engine/broken_episodes", "episodes", "episodes that ended because a request failed", "", ALL_EPISODES,
        "What the external engine cost; never trained."),
    machine("engine/retries", "requests", "requests made again after a failure", "",
        "How often the external engine did not answer at once."),
    metric("seed/opd_loss", "1", "sum of gate times gap", "by the normaliser", GATED,
        "The distillation term, before its coefficient."),
    metric("seed/coefficient", "1", "coefficient of the distillation term", "", "the iteration",
        "As scheduled."),
    metric("seed/row_share", "share", "rows under the distillation mask", "rows", ROWS,
        "Reach of the skills."),
    metric("seed/token_share", "share", "tokens under the distillation mask", "tokens", RESPONSE,
        "Reach of the skills in tokens."),
    metric("seed/token_share_success", "share", "masked tokens of successful episodes",
        "tokens of successful episodes", RESPONSE, "Reach in successes."),
    metric("seed/token_share_failure", "share", "masked tokens of failed episodes",
        "tokens of failed episodes", RESPONSE, "Reach in failures."),
    metric("seed/gap_mean", "nats", "sum of skill minus plain log-prob before the update", "tokens", GATED,
        "What knowing the skill changes."),
    metric("seed/gap_deviation", "nats", "standard deviation of the gap", "", GATED, "Spread of the gap."),
    metric("seed/gap_percentile_5", "nats", "5th percentile of the gap", "", GATED,
        "Tokens the skill speaks against."),
    metric("seed/gap_percentile_50", "nats", "median of the gap", "", GATED, "The usual token."),
    metric("seed/gap_percentile_95", "nats", "95th percentile of the gap", "", GATED,
        "Tokens the skill speaks for."),
    metric("seed/gap_mean_success", "nats", "sum of the gap in successful episodes",
        "tokens of successful episodes", GATED, "Positive when the skill confirms what worked."),
    metric("seed/gap_mean_failure", "nats", "sum of the gap in failed episodes", "tokens of failed episodes", GATED,
        "Negative when the skill warns of what failed."),
    metric("seed/gap_mean_action", "nats", "sum of the gap in action tokens", "action tokens", GATED,
        "Gap where the deed is."),
    metric("seed/gap_mean_reasoning", "nats", "sum of the gap outside action tokens", "tokens outside actions", GATED,
        "Gap where the thought is."),
    metric("seed/gap_mean_live", "nats", "sum of skill minus current log-prob while updating", "tokens", GATED,
        "What is left of the gap as the update goes on."),
    metric("seed/gate_mean", "1", "sum of gates", "tokens", GATED, "Mean weight of a token."),
    metric("seed/gate_above_half_share", "share", "tokens whose sigmoid gate is above one half", "tokens",
        GATED, "Tokens the skill favours."),
    metric("seed/gate_mean_success", "1", "sum of gates in successful episodes",
        "tokens of successful episodes", GATED, "Mean weight of a token of a success."),
    metric("seed/gate_mean_failure", "1", "sum of gates in failed episodes", "tokens of failed episodes", GATED,
        "Mean weight of a token of a failure."),
    metric("seed/gate_above_half_share_success", "share",
        "tokens of successful episodes whose sigmoid gate is above one half", "tokens of successful episodes", GATED,
        "What the skill favours of successes."),
    metric("seed/gate_above_half_share_failure", "share",
        "tokens of failed episodes whose sigmoid gate is above one half", "tokens of failed episodes", GATED,
        "What the skill favours of failures."),
    metric("seed/gate_within_epsilon_share", "share", "tokens whose gap is within the noise floor", "tokens",
        GATED, "Tokens the skill says nothing about."),
    metric("seed/prompt_tokens_mean", "tokens", "tokens of skill prompts", "rows",
        "rows under the distillation mask", "Length of skill prompts."),
    metric("seed/prompt_tokens_maximum", "tokens", "longest skill prompt", "",
        "rows under the distillation mask", "Longest skill prompt."),
    metric("seed/prompts_truncated", "rows", "rows whose skill prompt was cut", "",
        "rows under the distillation mask", "Skill prompts that did not fit."),
    metric("analysis/requests", "episodes", "analyses asked for", "", ANALYSED, "Work of the analyser."),
    metric("analysis/parse_rate", "share", "answers with a skill", "analyses", ANALYSED,
        "Whether the analyser keeps the format."),
    metric("analysis/parse_rate_success", "share", "answers with a skill", "analyses",
        "successful episodes analysed", "Parse rate in successes."),
    metric("analysis/parse_rate_failure", "share", "answers with a skill", "analyses",
        "failed episodes analysed", "Parse rate in failures."),
    metric("analysis/accepted_share", "share", "skills that passed every filter", "analyses", ANALYSED,
        "Skills that are used."),
    metric("analysis/skill_words_mean", "words", "words of accepted skills", "accepted skills", ANALYSED,
        "Length of skills."),
    metric("analysis/duplicate_share", "share", "skills equal to another of the iteration",
        "accepted skills", ANALYSED, "Whether skills are platitudes."),
    metric("analysis/copied_share", "share", "word sequences taken from the transcript",
        "word sequences of skills", ANALYSED, "Whether skills leak the episode."),
    metric("analysis/dropped_sentences", "sentences", "sentences the trajectory does not support", "",
        ANALYSED, "Work of the grounding filter."),
    metric("analysis/shortened_prompts", "episodes", "analysis prompts without some of the middle steps", "",
        ANALYSED, "Episodes too long to be read whole."),
    metric("analysis/truncated_prompts", "episodes", "analysis prompts cut from the left", "", ANALYSED,
        "Episodes of which not even one step fits."),
    metric("analysis/truncated_answers", "episodes", "answers cut at the token limit", "", ANALYSED,
        "Analyses that did not end."),
    metric("analysis/failed_requests", "episodes", "analyses that failed after every retry", "", ANALYSED,
        "Trouble with the endpoint."),
    metric("analysis/tokens_mean", "tokens", "tokens of answers", "analyses", ANALYSED,
        "Length of analyses."),
    metric("skill/source/{source}", "episodes", "episodes scored with a skill of this source", "",
        "episodes with a skill", "Whose skills distil."),
    metric("verification/episodes", "episodes", "episodes played to verify skills", "", "the iteration",
        "Cost of the verification, part of the sample axis."),
    metric("verification/accepted_share", "share", "skills that helped enough", "skills verified",
        "skills verified", "Skills that are used."),
    metric("verification/gain_mean", "share", "sum of success rate with the skill minus without",
        "skills verified", "skills verified", "What skills are worth in the task they come from."),
    metric("sft/loss", "nats", "sum of token losses", "tokens", "response tokens of the batch",
        "Training loss."),
    metric("sft/validation_loss", "nats", "sum of token losses", "tokens", "response tokens held out",
        "Validation loss."),
    metric("sft/learning_rate", "1", "learning rate of the step", "", "the step", "As scheduled."),
    metric("sft/gradient_norm", "1", "global norm before clipping", "", "the step", "Size of the gradient."),
    metric("sft/tokens", "tokens", "response tokens of the batch", "", "the step", "Size of the batch."),
    metric("sft/epoch", "epochs", "examples seen", "examples in an epoch", "the run", "Progress."),
    metric("evaluation/{split}/success_rate", "share", "successful episodes", "episodes", PANEL,
        "Success with the plain prompt.").verl("val-core/{split}/success/mean@1").trl("eval_{split}_success"),
    metric("evaluation/{split}/success_low", "share", "lower end of the 95 % interval of the success rate",
        "", PANEL, "Wilson's interval."),
    metric("evaluation/{split}/success_high", "share", "upper end of the 95 % interval of the success rate",
        "", PANEL, "Wilson's interval."),
    metric("evaluation/{split}/macro_success_rate", "share", "sum of family success rates", "families",
        PANEL, "Every family counts the same."),
    metric("evaluation/{split}/score_mean", "share", "sum of the results' grades", "episodes", PANEL,
        "Grade, in worlds that grade results between lost and won."),
    metric("evaluation/{split}/family/{family}/success_rate", "share", "successful episodes of the family",
        "episodes of the family", PANEL, "Success per task family."),
    metric("evaluation/{split}/{prompt}/success_rate", "share", "successful episodes", "episodes", PANEL,
        "Success with a skill in the prompt."),
    metric("evaluation/{split}/{prompt}/skill_share", "share", "episodes with a skill in their prompts", "episodes", PANEL,
        "How many had one: the policy's own analysis may fail."),
    metric("evaluation/{split}/episodes", "episodes", "episodes", "", PANEL, "Size of the panel."),
    metric("evaluation/{split}/excluded", "episodes",
        "episodes that ended in an environment error or a time-out", "", PANEL,
        "Left out of the success rate."),
    metric("evaluation/{split}/steps_mean", "steps", "environment steps", "episodes", PANEL,
        "Length of episodes."),
    metric("evaluation/{split}/valid_action_share", "share", "responses that obeyed the action format",
        "responses", PANEL, "Whether the format is kept."),
    metric("cost/rollout_tokens", "tokens", "tokens computed while sampling, prompts and responses", "", ITERATION,
        "What sampling computes; a prefix that episodes share counts once."),
    metric("cost/analysis_tokens", "tokens", "tokens computed while writing skills, prompts and answers", "",
        ITERATION, "What looking back computes, the episodes that verify skills included."),
    metric("cost/self_check_tokens", "tokens", "tokens computed to compare log-probs", "", ITERATION,
        "What checking the rollout computes."),
    metric("cost/rescore_tokens", "tokens", "tokens computed while scoring again", "", ITERATION,
        "What scores under other prompts and other weights compute."),
    metric("cost/update_tokens", "tokens", "tokens computed by the update, over all epochs", "", ITERATION,
        "What training computes."),
    metric("cost/update_tokens_per_trained_token", "1", "tokens computed by the update",
        "response tokens that train", ITERATION, "What a token costs because of the prompts around it."),
    metric("cost/tokens_per_trained_token", "1", "tokens computed in all phases", "response tokens that train",
        ITERATION, "What a token costs in all."),
    seconds("timing/iteration_seconds", "The whole iteration.").verl("timing_s/step").trl("step_time"),
    machine("timing/cpu_seconds", "s", "seconds of all threads together on processors", "",
        "What the iteration costs, without evaluation; other programs on the machine hardly change it."),
    seconds("timing/rollout_seconds", "Sampling episodes.").verl("timing_s/gen"),
    seconds("timing/environment_seconds", "Resetting and stepping environments, part of the rollout."),
    seconds("timing/prefill_seconds", "The engine reading prompts, part of the rollout. A step that also decodes counts \
         by its rows."),
    seconds("timing/decode_seconds", "The engine going on with responses, part of the rollout."),
    seconds("timing/analysis_seconds", "Writing skills."),
    seconds("timing/engine_sync_seconds", "Giving an external engine the policy's weights."),
    seconds("timing/self_check_seconds",
        "Scoring rows again to compare their log-probs: some, or all with an external engine."),
    seconds("timing/rescore_seconds", "Scoring under the skill prompt."),
    seconds("timing/update_seconds", "Forward, backward and optimiser.").verl("timing_s/update_actor"),
    seconds("timing/evaluation_seconds", "Evaluating.").verl("timing_s/testing"),
    machine("timing/environment_share", "share", "environment seconds", "iteration seconds",
        "What the environments cost."),
    machine("timing/sampled_tokens_per_second", "tokens/s", "sampled tokens", "rollout seconds",
        "Speed of sampling."),
    machine("timing/trained_tokens_per_second", "tokens/s", "tokens of the update, prompts included",
        "update seconds", "Speed of the update.").verl("perf/throughput"),
    machine("timing/environment_steps_per_second", "steps/s", "environment steps", "rollout seconds",
        "Speed of acting."),
    machine("memory/resident_bytes", "bytes", "resident memory of the process", "", "Memory now."),
    machine("memory/peak_bytes", "bytes", "largest resident memory of the process", "",
        "Memory at its highest."),
];
