//! Rules over several keys together: what cannot run, and what runs but hardly means what was written.

use seed_model::Place;

use super::choices::{
    Algorithm, Analyser, Context, EvaluationPrompt, GapZero, Gate, LearningRateSchedule, Normalisation,
    OutcomeFilter, Placement, SearchRetriever, SkillFrom, SkillMode, Teacher, WorldName,
};
use super::demonstrations::DemonstrateConfig;
use super::engine;
use super::fine_tuning::SftConfig;
use super::schema::{Findings, Origins};
use super::sections::{ModelSection, SearchSection, TrainConfig, WorldSection};

/// Checks a training configuration.
pub(crate) fn check_training(config: &TrainConfig, origins: &Origins) -> Findings {
    let mut findings = Findings::default();
    check_place(&config.model, &mut findings);
    check_sampling(config, &mut findings);
    check_lengths(config, &mut findings);
    if config.algorithm.name.has_teacher() {
        check_skills(config, &mut findings);
    }
    if config.algorithm.name == Algorithm::Seed {
        check_seed(config, &mut findings);
    }
    if config.algorithm.name == Algorithm::SkillGrpo && !config.seed.analyser.is_of_task() {
        findings.errors.push(format!(
            "`algorithm.name = \"skill_grpo\"` plays with a skill in the prompt, which has to be there before the episode: \
             `seed.analyser = \"{}\"` reads finished ones; use \"library\" or \"oracle\"",
            config.seed.analyser
        ));
    }
    engine::check(config, origins, &mut findings);
    warn_of_keys_without_effect(config, origins, &mut findings);
    warn_of_search_keys(&config.world, &config.search, origins, &mut findings);
    findings
}

/// Checks a demonstration recording.
pub(crate) fn check_demonstrations(config: &DemonstrateConfig, origins: &Origins) -> Findings {
    let mut findings = Findings::default();
    warn_of_search_keys(&config.world, &config.search, origins, &mut findings);
    let section = &config.demonstrations;
    let shares = [
        section.act_share,
        section.act_with_skill_share,
        section.act_with_other_skill_share,
        section.analyse_share,
    ];
    if shares.iter().sum::<f64>() <= 0.0 {
        findings
            .errors
            .push("all shares of `[demonstrations]` are `0`: there is nothing to record".to_owned());
    }
    if section.noise_low > section.noise_high {
        findings.errors.push(format!(
            "`demonstrations.noise_low` is `{}`, above `demonstrations.noise_high = {}`",
            section.noise_low, section.noise_high
        ));
    }
    if config.world.context == Context::Windowed {
        findings.warnings.push(
            "`world.context = \"windowed\"`: every step of an episode becomes an example of its own"
                .to_owned(),
        );
    }
    findings
}

/// Whether this build computes where the configuration says.
fn check_place(model: &ModelSection, findings: &mut Findings) {
    if let Err(error) = model.place().and_then(Place::check) {
        findings
            .errors
            .push(format!("`model.device = \"{}\"`: {error}", model.device));
    }
}

fn check_sampling(config: &TrainConfig, findings: &mut Findings) {
    let rollout = &config.rollout;
    if rollout.samples_per_task < 2 && !config.advantage.allow_single_sample {
        findings.errors.push(format!(
            "`rollout.samples_per_task` is `{}`: a group needs at least 2 episodes, with one every advantage is zero; \
             set `advantage.allow_single_sample = true` if that is meant",
            rollout.samples_per_task
        ));
    }
    if rollout.top_p < 1.0 || rollout.top_k > 0 {
        findings.warnings.push(format!(
            "`rollout.top_p = {}`, `rollout.top_k = {}`: episodes are drawn from a cut distribution while log-probs are \
             of the whole one, so the ratio does not start at 1 in the sampler's terms",
            rollout.top_p, rollout.top_k
        ));
    }
    if let Some(tasks) = config.world.train_tasks
        && tasks < rollout.tasks_per_iteration
    {
        findings.errors.push(format!(
            "`world.train_tasks` is `{tasks}` but one iteration draws `rollout.tasks_per_iteration = {}` different tasks",
            rollout.tasks_per_iteration
        ));
    }
    let evaluation = &config.evaluation;
    if evaluation.temperature == 0.0 && evaluation.samples_per_task > 1 {
        findings.warnings.push(format!(
            "`evaluation.samples_per_task = {}` at `evaluation.temperature = 0` repeats the same episode",
            evaluation.samples_per_task
        ));
    }
    let algorithm = &config.algorithm;
    for (key, value) in [
        ("clip_low", algorithm.clip_low),
        ("clip_high", algorithm.clip_high),
    ] {
        if value == 0.0 {
            findings.errors.push(format!(
                "`algorithm.{key}` is `0`: the policy loss would have no room to move; the paper has `0.2`"
            ));
        }
    }
    if let Some(bound) = algorithm.dual_clip
        && bound <= 1.0 + algorithm.clip_high
    {
        findings.errors.push(format!(
            "`algorithm.dual_clip` is `{bound}`, not above `1 + algorithm.clip_high = {}`; raise it, or write \"none\"",
            1.0 + algorithm.clip_high
        ));
    }
    let learns_from_outcome = algorithm.policy_coefficient > 0.0 && algorithm.name != Algorithm::Opsd;
    let distils = match algorithm.name {
        Algorithm::Seed => config.seed.coefficient > 0.0,
        Algorithm::Sdar | Algorithm::Opsd | Algorithm::GrpoOpsd | Algorithm::SkillSd => {
            config.baseline.coefficient != Some(0.0)
        }
        _ => false,
    };
    let trains = learns_from_outcome || distils || algorithm.iterations == 0;
    if !trains {
        findings.errors.push(
            "neither the outcome nor a distillation has a weight: nothing would be learned; raise \
             `algorithm.policy_coefficient` or the distillation's coefficient"
                .to_owned(),
        );
    }
}

fn check_lengths(config: &TrainConfig, findings: &mut Findings) {
    let rollout = &config.rollout;
    let limit = config.model.context_length;
    let needed = rollout.max_prompt_tokens + rollout.max_response_tokens;
    if needed > limit {
        findings.errors.push(format!(
            "`rollout.max_prompt_tokens + rollout.max_response_tokens` is `{needed}`, more than \
             `model.context_length = {limit}`"
        ));
    }
    let seed = &config.seed;
    let analyses = (config.algorithm.name.has_teacher() && seed.analyser.is_own_model())
        || config.evaluation.prompts.contains(&EvaluationPrompt::OwnSkill);
    let analysis = seed.max_analysis_prompt_tokens + seed.max_analysis_tokens;
    if analyses && analysis > limit {
        findings.errors.push(format!(
            "`seed.max_analysis_prompt_tokens + seed.max_analysis_tokens` is `{analysis}`, more than \
             `model.context_length = {limit}`"
        ));
    }
}

/// What every algorithm with a teacher needs of its skills.
fn check_skills(config: &TrainConfig, findings: &mut Findings) {
    let seed = &config.seed;
    let limit = config.model.context_length;
    let scored =
        config.rollout.max_prompt_tokens + config.rollout.max_response_tokens + seed.extra_prompt_tokens;
    if seed.extra_prompt_tokens > 0 && scored > limit {
        findings.errors.push(format!(
            "re-scoring under the skill prompt needs `rollout.max_prompt_tokens + seed.extra_prompt_tokens + \
             rollout.max_response_tokens = {scored}` tokens, more than `model.context_length = {limit}`"
        ));
    }
    if seed.analyser == Analyser::Endpoint && config.endpoint.model.is_empty() {
        findings
            .errors
            .push("`seed.analyser = \"endpoint\"` needs `endpoint.model`".to_owned());
    }
    if seed.min_skill_words > seed.max_skill_words {
        findings.errors.push(format!(
            "`seed.min_skill_words = {}` is above `seed.max_skill_words = {}`: no skill would pass",
            seed.min_skill_words, seed.max_skill_words
        ));
    }
    let by_steps = seed.skill_mode != SkillMode::Episode;
    if by_steps && seed.analyser.is_of_task() {
        findings.errors.push(format!(
            "`seed.skill_mode = \"{}\"` needs an analyser that reads episodes: `seed.analyser = \"{}\"` writes no step skills",
            seed.skill_mode, seed.analyser
        ));
    }
    if by_steps && seed.verification_replays > 0 {
        findings.errors.push(
            "`seed.verification_replays` verifies episode skills: use it with `seed.skill_mode = \"episode\"`".to_owned(),
        );
    }
    let other_task = seed.skill_from == SkillFrom::OtherTask
        || (seed.gap_zero == GapZero::OtherSkill && config.algorithm.name == Algorithm::Seed);
    if other_task && config.rollout.tasks_per_iteration < 2 {
        findings.errors.push(
            "skills of another task need at least 2 tasks in an iteration; `rollout.tasks_per_iteration` is `1`".to_owned(),
        );
    }
    if seed.analyser == Analyser::Teacher && seed.teacher == Teacher::Policy {
        findings.warnings.push(
            "`seed.analyser = \"teacher\"` with `seed.teacher = \"policy\"` is the same as `seed.analyser = \"policy\"`"
                .to_owned(),
        );
    }
}

/// What SEED's gated distillation needs.
fn check_seed(config: &TrainConfig, findings: &mut Findings) {
    let seed = &config.seed;
    let start = seed.start_after.unwrap_or(0);
    let iterations = config.algorithm.iterations;
    if seed.stop_after.is_some_and(|stop| start >= stop) || (iterations > 0 && start >= iterations) {
        findings.warnings.push(format!(
            "`seed.start_after = {start}` is not before `seed.stop_after` or the last iteration: there would be no \
             distillation at all"
        ));
    }
    let only_failures = seed.failed_only || seed.failed_only_after.is_some();
    if only_failures && seed.gate == Gate::Sigmoid && seed.outcome_filter == OutcomeFilter::All {
        findings.warnings.push(
            "only failed episodes are analysed while `seed.gate = \"sigmoid\"` can only raise tokens: failures would be \
             imitated; use `seed.gate = \"centered\"` or `seed.outcome_filter = \"advantage_aware\"`"
                .to_owned(),
        );
    }
    if seed.failed_only && seed.outcome_filter == OutcomeFilter::SuccessOnly {
        findings.errors.push(
            "`seed.failed_only = true` and `seed.outcome_filter = \"success_only\"` leave no episode to distil from"
                .to_owned(),
        );
    }
    if seed.placement == Placement::Advantage && matches!(seed.gate, Gate::Sigmoid | Gate::PositiveOnly) {
        findings.warnings.push(format!(
            "`seed.gate = \"{}\"` is never negative: as an advantage it raises every token it touches",
            seed.gate
        ));
    }
    if seed.coefficient == 0.0 {
        findings.warnings.push(
            "`seed.coefficient = 0` trains exactly as GRPO does while paying for the analysis".to_owned(),
        );
    }
}

/// A key someone set that nothing reads is more likely a misunderstanding than an intention.
fn warn_of_keys_without_effect(config: &TrainConfig, origins: &Origins, findings: &mut Findings) {
    let seed = &config.seed;
    let is_seed = config.algorithm.name == Algorithm::Seed;
    let mut unread = |key: &str, used: bool, needs: &str| {
        if !used && let Some(origin) = origins.get(key) {
            findings
                .warnings
                .push(format!("{origin}: `{key}` has no effect without {needs}"));
        }
    };
    unread(
        "world.data",
        matches!(
            config.world.name,
            WorldName::Alfworld | WorldName::Webshop | WorldName::SearchQa
        ),
        "`world.name = \"alfworld\"`, `\"webshop\"` or `\"search-qa\"`",
    );
    unread(
        "world.generator_seed",
        !matches!(config.world.name, WorldName::Alfworld | WorldName::SearchQa),
        "a generated world",
    );
    let is_shop = matches!(config.world.name, WorldName::Webshop | WorldName::Shop);
    for key in ["world.shop_goals", "world.shop_split", "world.shop_reward"] {
        unread(key, is_shop, "`world.name = \"webshop\"` or `\"shop\"`");
    }
    unread(
        "world.shop_catalogue",
        config.world.name == WorldName::Webshop,
        "`world.name = \"webshop\"`",
    );
    unread(
        "world.history_length",
        config.world.context == Context::Windowed,
        "`world.context = \"windowed\"`",
    );
    unread(
        "advantage.deviation_floor",
        config.advantage.normalisation == Normalisation::MeanDeviation,
        "`advantage.normalisation = \"mean_deviation\"`",
    );
    unread(
        "optimiser.final_ratio",
        config.optimiser.schedule != LearningRateSchedule::Constant,
        "a falling `optimiser.schedule`",
    );
    for key in [
        "adapter.targets",
        "adapter.rank",
        "adapter.alpha",
        "adapter.rank_stabilised",
    ] {
        unread(key, config.adapter.enabled, "`adapter.enabled = true`");
    }
    let has_teacher = config.algorithm.name.has_teacher();
    for key in [
        "seed.skill_from",
        "seed.wrong_skill_share",
        "seed.skill_mode",
        "seed.verification_replays",
    ] {
        unread(key, has_teacher, "an algorithm with a teacher");
    }
    if has_teacher {
        unread(
            "seed.ema_decay",
            seed.teacher == Teacher::Ema,
            "`seed.teacher = \"ema\"`",
        );
        unread(
            "seed.teacher_every",
            seed.teacher == Teacher::Periodic,
            "`seed.teacher = \"periodic\"`",
        );
        unread(
            "seed.max_step_skills",
            seed.skill_mode != SkillMode::Episode,
            "`seed.skill_mode = \"step\"` or `\"episode_step\"`",
        );
        let routed = config.algorithm.name == Algorithm::Opid && seed.skill_mode == SkillMode::EpisodeStep;
        unread(
            "seed.routing",
            routed,
            "`algorithm.name = \"opid\"` and `seed.skill_mode = \"episode_step\"`",
        );
        unread(
            "seed.verification_gain",
            seed.verification_replays > 0,
            "`seed.verification_replays`",
        );
    }
    if is_seed {
        unread(
            "seed.beta",
            !matches!(seed.gate, Gate::Delta | Gate::K3Is),
            "a sigmoid-based `seed.gate`",
        );
        unread(
            "seed.delta_clip",
            seed.gate == Gate::Delta,
            "`seed.gate = \"delta\"`",
        );
        let as_loss = seed.placement == Placement::Loss;
        unread("seed.normaliser", as_loss, "`seed.placement = \"loss\"`");
        unread("seed.trust_region", as_loss, "`seed.placement = \"loss\"`");
        unread(
            "seed.failed_only",
            seed.failed_only_after.is_none(),
            "leaving `seed.failed_only_after` unset",
        );
    }
}

/// Keys of `[search]` that the world or the retriever does not read.
fn warn_of_search_keys(
    world: &WorldSection,
    search: &SearchSection,
    origins: &Origins,
    findings: &mut Findings,
) {
    let needs = |key: &str| match (world.name, key, search.retriever) {
        (WorldName::SearchQa | WorldName::Knowledge, "dialect" | "top_k", _)
        | (WorldName::SearchQa, "failed_search" | "retriever", _)
        | (WorldName::SearchQa, "passages", SearchRetriever::Bm25 | SearchRetriever::Dense)
        | (
            WorldName::SearchQa,
            "index" | "encoder" | "query_prefix" | "passage_prefix" | "max_tokens",
            SearchRetriever::Dense,
        )
        | (
            WorldName::SearchQa,
            "urls" | "timeout_seconds" | "attempts" | "retry_delay_seconds" | "token_env",
            SearchRetriever::Http,
        ) => None,
        (WorldName::SearchQa, ..) => Some("another `search.retriever`"),
        (WorldName::Knowledge, ..) => Some("`world.name = \"search-qa\"`"),
        _ => Some("a search world"),
    };
    for (key, origin) in origins {
        if let Some(name) = key.strip_prefix("search.")
            && let Some(needs) = needs(name)
        {
            findings
                .warnings
                .push(format!("{origin}: `{key}` has no effect without {needs}"));
        }
    }
}

/// Checks a fine-tuning configuration.
pub(crate) fn check_fine_tuning(config: &SftConfig, origins: &Origins) -> Findings {
    let mut findings = Findings::default();
    check_place(&config.model, &mut findings);
    let sft = &config.sft;
    let initialise = &config.initialise;
    if sft.data.is_empty() {
        findings
            .errors
            .push("`sft.data` names no file; list the JSONL files of examples".to_owned());
    }
    if sft.max_length > config.model.context_length {
        findings.errors.push(format!(
            "`sft.max_length = {}` is above `model.context_length = {}`",
            sft.max_length, config.model.context_length
        ));
    }
    if let Some(tokens) = sft.batch_tokens
        && tokens < sft.max_length
    {
        findings.errors.push(format!(
            "`sft.batch_tokens = {tokens}` is below `sft.max_length = {}`: the longest example would fit no batch",
            sft.max_length
        ));
    }
    if initialise.enabled && config.adapter.enabled {
        findings.errors.push(
            "`initialise.enabled` and `adapter.enabled` are both set: an adapter needs a base to stand beside that is kept \
             somewhere; initialise and fine-tune one first, or set `adapter.enabled = false`"
                .to_owned(),
        );
    }
    if initialise.enabled {
        if initialise.key_value_heads == 0
            || !initialise.query_heads.is_multiple_of(initialise.key_value_heads)
        {
            findings.errors.push(format!(
                "`initialise.key_value_heads = {}` does not divide `initialise.query_heads = {}`",
                initialise.key_value_heads, initialise.query_heads
            ));
        }
        if !initialise.head_dim.is_multiple_of(2) {
            findings.errors.push(format!(
                "`initialise.head_dim = {}` is odd; rotary positions turn pairs",
                initialise.head_dim
            ));
        }
        if config.model.context_length > initialise.max_positions {
            findings.errors.push(format!(
                "`model.context_length = {}` is above `initialise.max_positions = {}`",
                config.model.context_length, initialise.max_positions
            ));
        }
    }
    let needs = |key: &str| match key {
        "initialise.enabled" => None,
        key if key.starts_with("initialise.") && !initialise.enabled => Some("`initialise.enabled = true`"),
        "model.path" if initialise.enabled => Some("`initialise.enabled = false`"),
        "sft.validation_fraction" if sft.validation_data.is_some() => {
            Some("leaving `sft.validation_data` unset")
        }
        "sft.final_ratio" if sft.schedule == LearningRateSchedule::Constant => {
            Some("a falling `sft.schedule`")
        }
        _ => None,
    };
    for (key, origin) in origins {
        if let Some(needs) = needs(key) {
            findings
                .warnings
                .push(format!("{origin}: `{key}` has no effect without {needs}"));
        }
    }
    findings
}
