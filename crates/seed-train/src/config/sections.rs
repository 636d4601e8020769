//! Every key of a training configuration: its type, default, rule and meaning, each said once, here.
//!
//! The defaults are the paper's settings for ALFWorld (arXiv 2607.14777). The same file serves `collect`, `annotate`,
//! `train` and `eval`, which read the tables they need.
//!
//! Not for: rules over several keys ([`super::validate`]) or keys of fine-tuning ([`super::fine_tuning`]).

use std::path::PathBuf;

use super::adapter::AdapterSection;
use super::choices::{
    Aggregation, Algorithm, Analyser, AnalysisStyle, CoefficientSchedule, Context, EvaluationPrompt,
    EvaluationSplit, FailedSearch, GapZero, Gate, LearningRateSchedule, MetricNames, Normalisation,
    Normaliser, OutcomeFilter, Placement, Precision, PromptStyle, PromptTruncation, Routing, SearchDialect,
    SearchRetriever, ShopCatalogue, ShopGoals, ShopReward, ShopSplit, SkillFrom, SkillMode, StatisticUnit,
    Teacher, TokenSelection, WorldName,
};
use super::engine::EngineSection;
use super::rule::Rule::{
    Above, AboveUpTo, Any, AtLeast, Between, Device, EnvironmentVariable, FromBelow, NotEmpty, WebAddress,
};
use super::schema::{document, section};
use super::validate;

section! {
    /// Identity and place of the run.
    RunSection = "run" {
        /// Name shown in tables and pictures.
        name: String = "run".to_owned(), NotEmpty, Runtime;
        /// Folder that receives everything the run writes.
        directory: PathBuf = PathBuf::from("runs/run"), NotEmpty, Runtime;
        /// Seed from which every random number of the run is derived.
        seed: u64 = 1, Any;
        /// Worker threads; 0 uses every core. Results do not depend on it.
        threads: usize = 0, Any, Runtime;
    }
}

section! {
    /// The policy's weights and how they are run.
    ModelSection = "model" {
        /// Hugging Face folder with config.json, safetensors and tokenizer.json, or a GGUF file.
        path: PathBuf = PathBuf::from("models/household-tiny"), NotEmpty;
        /// What computes: `cpu` is the own kernels, for which every promise of equal bits holds. `cuda:0`, `metal:0` (with the
        /// number of the GPU) and `candle-cpu` need a build with the feature `cuda`, `metal` or `composed`.
        device: String = "cpu".to_owned(), Device;
        /// Number format of weights and arithmetic.
        precision: Precision = Precision::F32, Any;
        /// Longest sequence in tokens, prompt and response together, for acting and for analysis.
        context_length: usize = 20_480, AtLeast(16.0);
        /// Whether the chat template is asked to open a thinking section.
        thinking: bool = false, Any;
        /// Recompute each layer's activations in the backward pass: less memory, more time, same bits.
        recompute_activations: bool = false, Any, Runtime;
    }
}

section! {
    /// The world the policy acts in.
    WorldSection = "world" {
        /// Which family of tasks.
        name: WorldName = WorldName::Alfworld, Any;
        /// Data folder of ALFWorld (the one holding json_2.1.1) or WebShop (the one holding items_shuffle_1000.json), where
        /// unset reads the variable ALFWORLD_DATA or WEBSHOP_DATA; for search-qa the folder of question files.
        data: Option<PathBuf> = None, NotEmpty;
        /// Seed of generated worlds: which games, products or facts exist. In shops also of prices and goals.
        generator_seed: u64 = 0, Any;
        /// Steps after which an episode ends as out of turns.
        max_steps: usize = 30, AtLeast(1.0);
        /// Past exchanges shown in a windowed prompt.
        history_length: usize = 5, Any;
        /// How the policy sees an episode.
        context: Context = Context::Windowed, Any;
        /// How much text prompts spend.
        prompts: PromptStyle = PromptStyle::Full, Any;
        /// Use only the first so many training tasks; unset uses all.
        train_tasks: Option<usize> = None, AtLeast(1.0);
        /// Which catalogue of WebShop.
        shop_catalogue: ShopCatalogue = ShopCatalogue::Small, Any;
        /// Which wishes a shop's tasks are made from.
        shop_goals: ShopGoals = ShopGoals::Synthetic, Any;
        /// How a shop's tasks are divided.
        shop_split: ShopSplit = ShopSplit::Product, Any;
        /// What a purchase earns.
        shop_reward: ShopReward = ShopReward::Success, Any;
        /// Seconds one environment step may take before its episode ends as timed out. Watched only in worlds that wait
        /// for something outside the program, such as a search world with the http retriever.
        step_timeout_seconds: f64 = 30.0, Above(0.0), Runtime;
    }
}

section! {
    /// Search worlds: the protocol and who finds passages. The knowledge world brings its own passages and BM25.
    SearchSection = "search" {
        /// Whose rules actions and results follow.
        dialect: SearchDialect = SearchDialect::VerlAgent, Any;
        /// Passages shown per search.
        top_k: usize = 3, Between(1.0, 1000.0);
        /// What a search that failed does to its episode.
        failed_search: FailedSearch = FailedSearch::EnvironmentError, Any;
        /// Who finds passages.
        retriever: SearchRetriever = SearchRetriever::Bm25, Any;
        /// Passages for bm25 and dense: JSON lines with id and contents, plain, .gz or .zst.
        passages: Option<PathBuf> = None, NotEmpty;
        /// Let bm25 find words whatever their accents; false is Anserini's analysis.
        fold_accents: bool = true, Any;
        /// Folder of a dense index of these passages.
        index: Option<PathBuf> = None, NotEmpty;
        /// Hugging Face folder of the sentence encoder that made the index.
        encoder: Option<PathBuf> = None, NotEmpty;
        /// Put in front of every query before it is encoded, such as "query: " for e5.
        query_prefix: String = String::new(), Any;
        /// Put in front of every passage before it was encoded, such as "passage: " for e5.
        passage_prefix: String = String::new(), Any;
        /// Longest encoded text in tokens; unset takes the encoder's own limit.
        max_tokens: Option<usize> = None, AtLeast(2.0);
        /// Addresses for http, taken in turn.
        urls: Vec<String> = vec!["http://127.0.0.1:8000/retrieve".to_owned()], WebAddress, Runtime;
        /// Seconds one attempt may take.
        timeout_seconds: f64 = 30.0, Above(0.0), Runtime;
        /// Attempts per request, the first included.
        attempts: usize = 10, Between(1.0, 1000.0), Runtime;
        /// Seconds waited after the first failed attempt; after the second twice as long, and so on.
        retry_delay_seconds: f64 = 1.0, AtLeast(0.0), Runtime;
        /// Name of an environment variable holding a token for the server; unset sends none.
        token_env: Option<String> = None, EnvironmentVariable, Runtime;
    }
}

section! {
    /// How episodes are sampled for training.
    RolloutSection = "rollout" {
        /// Tasks drawn per iteration.
        tasks_per_iteration: usize = 16, AtLeast(1.0);
        /// Episodes of one task that form a group.
        samples_per_task: usize = 8, AtLeast(1.0);
        /// Sampling temperature; log-probs of old, reference, skill and updated policy are all taken at it.
        temperature: f64 = 1.0, Above(0.0);
        /// Nucleus sampling: keep the most likely tokens up to this probability; 1 keeps all.
        top_p: f64 = 1.0, AboveUpTo(0.0, 1.0);
        /// Keep only so many most likely tokens; 0 keeps all.
        top_k: usize = 0, Any;
        /// Longest prompt of one step in tokens; in transcript context, the longest conversation before a response.
        max_prompt_tokens: usize = 2048, AtLeast(1.0);
        /// Longest response of one step in tokens.
        max_response_tokens: usize = 512, AtLeast(1.0);
        /// What happens to a longer prompt.
        prompt_truncation: PromptTruncation = PromptTruncation::Left, Any;
        /// Sequences decoded at once; results do not depend on it.
        max_active_sequences: usize = 128, AtLeast(1.0), Runtime;
        /// Prompt tokens processed at once when a sequence enters; results do not depend on it.
        prefill_tokens: usize = 512, AtLeast(1.0), Runtime;
        /// Share of an iteration's rows, at least one, that are scored again before the update: the run stops when a
        /// log-prob is not the recorded one to the last bit. 0 checks nothing.
        self_check_share: f64 = 0.01, Between(0.0, 1.0), Runtime;
        /// On other devices than `cpu`, where every row is scored again: the largest mean difference, in nats a token, between
        /// the log-probs recorded and those of scoring; beyond it the run stops.
        device_mismatch: f64 = 0.05, AtLeast(0.0), Runtime;
        /// Share of the latest 256 episodes that may end in an environment error before the run stops.
        max_error_share: f64 = 0.1, Between(0.0, 1.0), Runtime;
    }
}

section! {
    /// How rewards become advantages.
    AdvantageSection = "advantage" {
        /// What a group's mean and deviation are taken over.
        statistic_unit: StatisticUnit = StatisticUnit::Step, Any;
        /// Whether the deviation divides.
        normalisation: Normalisation = Normalisation::MeanDeviation, Any;
        /// Smallest deviation divided by: keeps penalties from filling a tied group; 0 is the paper.
        deviation_floor: f64 = 0.0, AtLeast(0.0);
        /// Whether invalid-action penalties take part in the mean and the deviation.
        penalty_in_statistics: bool = true, Any;
        /// Subtracted from the score of a step whose response broke the action format.
        invalid_action_penalty: f64 = 0.1, AtLeast(0.0);
        /// Allow groups of one episode, whose advantage is always zero.
        allow_single_sample: bool = false, Any;
    }
}

section! {
    /// The policy update.
    AlgorithmSection = "algorithm" {
        /// What the policy is trained by.
        name: Algorithm = Algorithm::Grpo, Any;
        /// Iterations of rollout and update; 0 only evaluates the initial policy.
        iterations: usize = 150, AtLeast(0.0);
        /// Passes over an iteration's rows.
        epochs: usize = 1, AtLeast(1.0);
        /// Rows per optimiser step: a row is one step in windowed context, one episode in transcript context.
        mini_batch_rows: usize = 256, AtLeast(1.0);
        /// Tokens per forward and backward pass; results do not depend on it.
        micro_batch_tokens: usize = 8192, AtLeast(1.0), Runtime;
        /// Weight of the policy loss; 0 leaves only the other terms.
        policy_coefficient: f64 = 1.0, AtLeast(0.0);
        /// The probability ratio is clipped below at 1 minus this.
        clip_low: f64 = 0.2, FromBelow(0.0, 1.0);
        /// The probability ratio is clipped above at 1 plus this.
        clip_high: f64 = 0.2, AtLeast(0.0);
        /// With a negative advantage the loss is bounded at this times its size; unset leaves it unbounded.
        dual_clip: Option<f64> = Some(3.0), Above(1.0);
        /// Weight of the k3 estimate of the KL divergence to the initial policy, in the loss.
        kl_coefficient: f64 = 0.01, AtLeast(0.0);
        /// Weight of the entropy bonus.
        entropy_coefficient: f64 = 0.001, AtLeast(0.0);
        /// How token losses become one number.
        aggregation: Aggregation = Aggregation::TokenMean, Any;
    }
}

section! {
    /// SEED: hindsight skills and the gated distillation from them. The keys on skills, analyser, teacher, start and stop
    /// are read by every algorithm with a teacher; coefficient, gate and what shapes them by `algorithm.name = "seed"` only.
    SeedSection = "seed" {
        /// Weight of the distillation term.
        coefficient: f64 = 0.01, AtLeast(0.0);
        /// Slope of the sigmoid in the gate, per nat of gap.
        beta: f64 = 5.0, AtLeast(0.0);
        /// How the gap weighs a token.
        gate: Gate = Gate::Sigmoid, Any;
        /// Tokens whose gap is smaller than this in nats get no weight.
        gate_epsilon: f64 = 0.0, AtLeast(0.0);
        /// What the log-prob under the skill prompt is compared with.
        gap_zero: GapZero = GapZero::Student, Any;
        /// Bound of the gap in nats with the delta gate.
        delta_clip: f64 = 1.0, Above(0.0);
        /// Where the gated signal enters the update.
        placement: Placement = Placement::Loss, Any;
        /// Which episodes' tokens it may touch.
        outcome_filter: OutcomeFilter = OutcomeFilter::All, Any;
        /// What the distillation loss is divided by.
        normaliser: Normaliser = Normaliser::Mask, Any;
        /// Which tokens of a response it may touch.
        token_selection: TokenSelection = TokenSelection::All, Any;
        /// Leave episodes out whose mean gap over action tokens before the update is not above this many nats (successes) or
        /// below its negative (failures); unset leaves none out.
        trajectory_gap_margin: Option<f64> = None, AtLeast(0.0);
        /// Drop the distillation gradient where the probability ratio has left the policy loss's clip range.
        trust_region: bool = false, Any;
        /// Whose weights score the tokens under the skill prompt.
        teacher: Teacher = Teacher::Policy, Any;
        /// Share of the old average kept at each iteration by the moving-average teacher.
        ema_decay: f64 = 0.95, FromBelow(0.0, 1.0);
        /// Iterations between two copies of the policy's weights to the periodic teacher.
        teacher_every: usize = 10, AtLeast(1.0);
        /// The distillation begins after so many iterations; unset begins at once.
        start_after: Option<usize> = None, Any;
        /// The last iteration with distillation; unset never stops.
        stop_after: Option<usize> = None, Any;
        /// How the coefficient moves over the run.
        schedule: CoefficientSchedule = CoefficientSchedule::Constant, Any;
        /// Iterations over which the coefficient rises from zero.
        warmup_iterations: usize = 0, Any;
        /// Who writes the skills.
        analyser: Analyser = Analyser::Policy, Any;
        /// Whose skill an episode is scored with.
        skill_from: SkillFrom = SkillFrom::Own, Any;
        /// Share of skills that are replaced by a misleading one of the same form, drawn by rule.
        wrong_skill_share: f64 = 0.0, Between(0.0, 1.0);
        /// Which skills are written.
        skill_mode: SkillMode = SkillMode::Episode, Any;
        /// Most step skills of an episode.
        max_step_skills: usize = 1, AtLeast(1.0);
        /// How a step with a skill of its own is scored when its episode has one too.
        routing: Routing = Routing::StepFirst, Any;
        /// Episodes played with each skill, and with none, to verify it before it is used; 0 verifies nothing.
        verification_replays: usize = 0, Any;
        /// A verified skill is used if at least one replay more succeeded and the success rate rose by this much.
        verification_gain: f64 = 0.125, Between(0.0, 1.0);
        /// How the analysis prompt is written.
        analysis_style: AnalysisStyle = AnalysisStyle::Reference, Any;
        /// How the skill's block in the prompt is written.
        skill_style: PromptStyle = PromptStyle::Full, Any;
        /// Whether the analyser also writes a summary of the episode before the skill.
        analysis_summary: bool = true, Any;
        /// Sampling temperature of the analyser; 0 is greedy.
        analyser_temperature: f64 = 0.0, AtLeast(0.0);
        /// Longest analysis prompt in tokens.
        max_analysis_prompt_tokens: usize = 16_384, AtLeast(1.0);
        /// Longest analysis in tokens.
        max_analysis_tokens: usize = 4096, AtLeast(1.0);
        /// Analyse failed episodes only.
        failed_only: bool = false, Any;
        /// Analyse all episodes up to this iteration and failed ones only afterwards; overrides `failed_only`.
        failed_only_after: Option<usize> = None, Any;
        /// Drop a skill's sentences that its own trajectory does not support.
        grounding_filter: bool = false, Any;
        /// Skills with fewer words are dropped.
        min_skill_words: usize = 0, Any;
        /// Skills with more words are cut.
        max_skill_words: usize = 400, AtLeast(1.0);
        /// Skills that copy a longer run of words from their own transcript are dropped; unset allows any.
        max_copied_words: Option<usize> = None, AtLeast(1.0);
        /// Drop skills that name an object of their own transcript, such as `mug 1`.
        refuse_object_names: bool = false, Any;
        /// Tokens by which a prompt may exceed `rollout.max_prompt_tokens` when the skill is in it.
        extra_prompt_tokens: usize = 0, Any;
        /// Leave rows out of the distillation whose skill prompt had to be cut.
        mask_truncated_prompts: bool = false, Any;
        /// Strip the prompt's outer white space when the skill goes in, as the reference implementation does.
        strip_white_space: bool = false, Any;
    }
}

section! {
    /// Published constants of the baselines. Each algorithm reads its own.
    BaselineSection = "baseline" {
        /// Weight of the teacher's signal, or of GiGPO's step advantage; unset is the published value: 0.01 (sdar, opsd,
        /// grpo_opsd), 0.001 (skill_sd, opid), 0.5 (rlsd, serl), 1 (gigpo).
        coefficient: Option<f64> = None, AtLeast(0.0);
        /// Iterations over which the weight falls to zero (rlsd, serl); unset is the published number: 100 and 50.
        decay_iterations: Option<usize> = None, AtLeast(1.0);
        /// Slope of the gate, per nat of gap (sdar, opsd).
        beta: f64 = 5.0, AtLeast(0.0);
        /// Largest relative change of an advantage at full weight (rlsd, serl).
        clip: f64 = 0.2, Between(0.001, 0.999);
        /// Discount of step rewards (gigpo).
        discount: f64 = 0.95, Between(0.0, 1.0);
    }
}

section! {
    /// AdamW and its learning rate.
    OptimiserSection = "optimiser" {
        /// Learning rate after warm-up.
        learning_rate: f64 = 1e-6, Above(0.0);
        /// Decay of the first moment.
        beta1: f64 = 0.9, FromBelow(0.0, 1.0);
        /// Decay of the second moment.
        beta2: f64 = 0.999, FromBelow(0.0, 1.0);
        /// Added to the root of the second moment.
        epsilon: f64 = 1e-8, Above(0.0);
        /// Decoupled weight decay of the matrices.
        weight_decay: f64 = 0.01, AtLeast(0.0);
        /// The gradient is scaled down to this global norm; unset never scales.
        gradient_clip: Option<f64> = Some(1.0), Above(0.0);
        /// How the learning rate moves after warm-up.
        schedule: LearningRateSchedule = LearningRateSchedule::Constant, Any;
        /// Share of the iterations over which the learning rate rises from zero.
        warmup_ratio: f64 = 0.0, Between(0.0, 1.0);
        /// Share of the learning rate left at the end of a falling schedule.
        final_ratio: f64 = 0.0, Between(0.0, 1.0);
    }
}

section! {
    /// Evaluation on fixed panels.
    EvaluationSection = "evaluation" {
        /// Evaluate every so many iterations, and after the last; 0 only after the last.
        every: usize = 5, Any, Runtime;
        /// Evaluate before the first update too.
        before_training: bool = false, Any, Runtime;
        /// Panels to evaluate on.
        splits: Vec<EvaluationSplit> = vec![EvaluationSplit::Seen, EvaluationSplit::Unseen], NotEmpty, Runtime;
        /// Each panel is played once with each of these; only with the plain prompt is nothing of the method left.
        prompts: Vec<EvaluationPrompt> = vec![EvaluationPrompt::Plain], NotEmpty, Runtime;
        /// Use only the first so many tasks of each panel; unset uses all.
        tasks: Option<usize> = None, AtLeast(1.0), Runtime;
        /// Sampling temperature; 0 is greedy.
        temperature: f64 = 0.4, AtLeast(0.0), Runtime;
        /// Episodes per task.
        samples_per_task: usize = 1, AtLeast(1.0), Runtime;
        /// Seed of the evaluation's random numbers, the same at every evaluation.
        seed: u64 = 0, Any, Runtime;
    }
}

section! {
    /// What is kept to resume from.
    CheckpointSection = "checkpoint" {
        /// Save every so many iterations (updates when fine-tuning), and after the last.
        every: usize = 10, AtLeast(1.0), Runtime;
        /// Newest checkpoints kept.
        keep: usize = 2, AtLeast(2.0), Runtime;
        /// Keep for ever every checkpoint whose iteration is a multiple of this; unset keeps none for ever.
        keep_every: Option<usize> = None, AtLeast(1.0), Runtime;
        /// Keep the checkpoint with the best evaluation.
        keep_best: bool = true, Any, Runtime;
    }
}

section! {
    /// What is written for people and dashboards.
    LoggingSection = "logging" {
        /// Write trajectories and skills of every so many iterations; 0 writes none.
        trajectories_every: usize = 1, Any, Runtime;
        /// Write TensorBoard event files.
        tensorboard: bool = true, Any, Runtime;
        /// Whose metric names the TensorBoard files carry.
        metric_names: MetricNames = MetricNames::Native, Any, Runtime;
    }
}

section! {
    /// A model behind an OpenAI-compatible address. Read by `annotate` and by `seed.analyser = "endpoint"`.
    EndpointSection = "endpoint" {
        /// Address up to and without /chat/completions.
        base_url: String = "http://127.0.0.1:8000/v1".to_owned(), WebAddress;
        /// Model name sent with each request.
        model: String = String::new(), Any;
        /// Name of the environment variable holding the key; the key itself is never stored.
        api_key_env: String = "OPENAI_API_KEY".to_owned(), EnvironmentVariable, Runtime;
        /// Seconds a request may take.
        timeout_seconds: f64 = 120.0, Above(0.0), Runtime;
        /// Further tries after a request failed.
        retries: usize = 5, Between(0.0, 100.0), Runtime;
        /// Seconds before the first further try; each later wait doubles.
        retry_delay_seconds: f64 = 1.0, AtLeast(0.0), Runtime;
        /// Requests in flight at once.
        concurrency: usize = 8, Between(1.0, 1024.0), Runtime;
        /// Answers read per episode: after one that is of no use the model is asked again and told what was wrong.
        parse_attempts: usize = 2, Between(1.0, 100.0);
        /// A longer answer is refused.
        max_response_bytes: usize = 1_048_576, AtLeast(1024.0), Runtime;
    }
}

impl EndpointSection {
    /// The variable whose key is sent. A server on this machine may need none: without one in the environment none is
    /// sent.
    pub fn key_variable(&self) -> Option<String> {
        std::env::var_os(&self.api_key_env).map(|_| self.api_key_env.clone())
    }
}

document! {
    /// A validated training configuration; also what `collect`, `annotate` and `eval` read.
    TrainConfig = "training configuration", check: validate::check_training, {
        run: RunSection,
        model: ModelSection,
        adapter: AdapterSection,
        world: WorldSection,
        search: SearchSection,
        rollout: RolloutSection,
        engine: EngineSection,
        advantage: AdvantageSection,
        algorithm: AlgorithmSection,
        seed: SeedSection,
        baseline: BaselineSection,
        optimiser: OptimiserSection,
        evaluation: EvaluationSection,
        checkpoint: CheckpointSection,
        logging: LoggingSection,
        endpoint: EndpointSection,
    }
}

impl TrainConfig {
    /// Whether training asks the endpoint for analyses.
    pub fn asks_endpoint(&self) -> bool {
        self.seed.analyser == Analyser::Endpoint && self.algorithm.name.has_teacher()
    }
}

impl ModelSection {
    /// What computes, and in which number format.
    ///
    /// # Errors
    /// Where there is no device of this name, which the key's rule refuses too.
    pub fn place(&self) -> Result<seed_model::Place, seed_model::ModelError> {
        Ok(seed_model::Place {
            device: self.device.parse()?,
            precision: match self.precision {
                Precision::F32 => seed_model::Precision::F32,
                Precision::Bf16 => seed_model::Precision::Bf16,
            },
        })
    }
}
