//! The words a configuration can choose between, each with its meaning.

use super::value::choice;

choice! {
    /// Number format of weights and arithmetic.
    Precision {
        /// IEEE single precision: bit-reproducible on every CPU.
        F32 = "f32",
        /// Matrices and what is multiplied with them in bfloat16, with master weights, gradient sums and optimiser state in
        /// single precision. Not for `model.device = "cpu"`.
        Bf16 = "bf16",
    }
}

choice! {
    /// A family of tasks to act in.
    WorldName {
        /// The original ALFWorld games, read from a folder holding `json_2.1.1`.
        Alfworld = "alfworld",
        /// Generated one-room households of about a dozen receptacles; nothing to download.
        HouseholdStudio = "household-studio",
        /// Generated households of ALFWorld's own size; nothing to download.
        HouseholdFull = "household-full",
        /// WebShop on its own products, read from a folder.
        Webshop = "webshop",
        /// WebShop's rules on generated products; nothing to download.
        Shop = "shop",
        /// Questions from files, answered by searching passages; see `[search]`.
        SearchQa = "search-qa",
        /// Questions about generated knowledge, answered by searching; nothing to download.
        Knowledge = "knowledge",
    }
}

choice! {
    /// Which of WebShop's two catalogues.
    ShopCatalogue {
        /// The 1,000 products of `items_shuffle_1000.json`.
        Small = "small",
        /// All products, of `items_shuffle.json`.
        Full = "full",
    }
}

choice! {
    /// Which wishes a shop's tasks are made from.
    ShopGoals {
        /// From templates: one per combination of a product's options.
        Synthetic = "synthetic",
        /// Wishes in people's words; in a generated shop, in other words than the templates'.
        Human = "human",
    }
}

choice! {
    /// How a shop's tasks are divided.
    ShopSplit {
        /// By place in the published order: 500 `seen`, then 1,000 `development`, then `train`.
        Order = "order",
        /// As `order`, with the wishes for a tenth of the products held out as `unseen`.
        Product = "product",
    }
}

choice! {
    /// What a purchase earns.
    ShopReward {
        /// 10 when everything fits, else 0 (the reference).
        Success = "success",
        /// 10 times the score.
        Score = "score",
    }
}

choice! {
    /// Whose rules actions and results of a search world follow.
    SearchDialect {
        /// verl-agent's: one search or answer per step, results as JSON.
        VerlAgent = "verl_agent",
        /// Search-R1's own: one growing transcript, results as plain text.
        SearchR1 = "search_r1",
    }
}

choice! {
    /// Who finds passages.
    SearchRetriever {
        /// BM25 with Lucene's analysis, in memory.
        Bm25 = "bm25",
        /// A flat index of sentence embeddings, made by `seed retrieve index`.
        Dense = "dense",
        /// A server that speaks the format of Search-R1's, such as `seed retrieve serve`.
        Http = "http",
    }
}

choice! {
    /// What a search that failed does to its episode.
    FailedSearch {
        /// The episode ends as an environment error: counted, never trained.
        EnvironmentError = "environment_error",
        /// The policy reads the error as the result and goes on, as in the reference.
        Observation = "observation",
    }
}

choice! {
    /// How the policy sees an episode.
    Context {
        /// Every step is its own prompt holding the last exchanges as text, as in the paper.
        Windowed = "windowed",
        /// The episode is one growing conversation; nothing is repeated.
        Transcript = "transcript",
    }
}

choice! {
    /// How much text prompts spend.
    PromptStyle {
        /// The reference's layout, for pre-trained language models.
        Full = "full",
        /// The fewest tokens, for a small policy taught on this very phrasing.
        Compact = "compact",
    }
}

choice! {
    /// What the log-prob under the skill prompt is compared with.
    GapZero {
        /// The policy's own log-prob under the plain prompt (the paper).
        Student = "student",
        /// The teacher's log-prob under the plain prompt: removes how teacher and policy differ without a skill.
        Teacher = "teacher",
        /// The teacher's log-prob with another task's skill in its place: removes what the mere presence of a skill does.
        OtherSkill = "other_skill",
    }
}

choice! {
    /// What happens to a prompt that is longer than its limit.
    PromptTruncation {
        /// Tokens are cut from its beginning.
        Left = "left",
        /// The episode ends as out of tokens.
        Error = "error",
    }
}

choice! {
    /// What the policy is trained by.
    Algorithm {
        /// Group-relative policy optimisation on the episode's outcome alone.
        Grpo = "grpo",
        /// GRPO plus self-evolving on-policy distillation from hindsight skills.
        Seed = "seed",
        /// GRPO on episodes played with a skill in the prompt; needs `seed.analyser = "library"` or `"oracle"`.
        SkillGrpo = "skill_grpo",
        /// Gated distillation from a teacher that reads a skill, without the outcome.
        Opsd = "opsd",
        /// GRPO plus ungated distillation.
        GrpoOpsd = "grpo_opsd",
        /// GRPO plus importance-weighted k3 distillation.
        SkillSd = "skill_sd",
        /// GRPO with advantages whose size the teacher changes.
        Rlsd = "rlsd",
        /// GRPO plus gated distillation.
        Sdar = "sdar",
        /// RLSD on action tokens only.
        Serl = "serl",
        /// GRPO with the teacher's gap added to the advantage.
        Opid = "opid",
        /// GRPO with a second advantage among steps that saw the same observation.
        Gigpo = "gigpo",
    }
}

choice! {
    /// The unit over which a group's mean and deviation are taken.
    StatisticUnit {
        /// Every step's row counts once, so long episodes weigh more (the reference implementation).
        Step = "step",
        /// Every trajectory counts once (the paper's formula).
        Trajectory = "trajectory",
    }
}

choice! {
    /// How a group's scores become advantages.
    Normalisation {
        /// Subtract the group's mean and divide by its standard deviation.
        MeanDeviation = "mean_deviation",
        /// Subtract the group's mean only.
        Mean = "mean",
    }
}

choice! {
    /// How token losses of a mini-batch become one number.
    Aggregation {
        /// Sum over all response tokens divided by their number.
        TokenMean = "token_mean",
        /// Mean over rows of each row's token sum.
        RowMeanTokenSum = "row_mean_token_sum",
        /// Mean over rows of each row's token mean.
        RowMeanTokenMean = "row_mean_token_mean",
        /// Mean over rows of each row's token sum divided by the response limit.
        RowMeanTokenSumFixed = "row_mean_token_sum_fixed",
    }
}

choice! {
    /// How the gap between the log-prob under the skill prompt and the plain one weighs a token.
    Gate {
        /// `sigmoid(beta * gap)`: the paper's gate, never negative.
        Sigmoid = "sigmoid",
        /// `2 * sigmoid(beta * gap) - 1`: raises tokens the skill favours and lowers the others.
        Centered = "centered",
        /// The gap itself, clipped to plus or minus `delta_clip`: the reverse-KL gradient.
        Delta = "delta",
        /// The paper's gate where the gap is positive, zero elsewhere.
        PositiveOnly = "positive_only",
        /// Skill-SD's importance-weighted k3: the gap times the probability ratio.
        K3Is = "k3_is",
    }
}

choice! {
    /// Where the gated signal enters the update.
    Placement {
        /// A separate loss beside the policy loss (the paper).
        Loss = "loss",
        /// Added to the token's advantage, and so inside the policy loss's clip.
        Advantage = "advantage",
    }
}

choice! {
    /// Which tokens the distillation may touch, by the outcome of their episode.
    OutcomeFilter {
        /// All (the paper).
        All = "all",
        /// Only those of successful episodes.
        SuccessOnly = "success_only",
        /// The gate's direction follows the sign of the advantage: a failed episode's tokens are not raised.
        AdvantageAware = "advantage_aware",
    }
}

choice! {
    /// What the distillation loss is divided by.
    Normaliser {
        /// The masked tokens of the mini-batch (the paper).
        Mask = "mask",
        /// All response tokens of the rows that train together.
        Response = "response",
        /// All response tokens of the mini-batch: constant strength per token.
        MiniBatch = "mini_batch",
    }
}

choice! {
    /// Whose weights score the tokens under the skill prompt.
    Teacher {
        /// The policy as it was before this iteration's update (the paper).
        Policy = "policy",
        /// The initial policy, for ever.
        Frozen = "frozen",
        /// An exponential moving average of the policy.
        Ema = "ema",
        /// The policy as it was when its weights were last copied, every `seed.teacher_every` iterations.
        Periodic = "periodic",
    }
}

choice! {
    /// Who writes an episode's skill.
    Analyser {
        /// The policy as it was before this iteration's update (the paper).
        Policy = "policy",
        /// The same weights as the teacher.
        Teacher = "teacher",
        /// The initial policy, for ever: the analyser does not evolve.
        Frozen = "frozen",
        /// A model behind an OpenAI-compatible address; see `[endpoint]`.
        Endpoint = "endpoint",
        /// Rules that read the finished episode, in worlds whose texts they can read.
        Rules = "rules",
        /// Rules that know the task's solution: an upper bound of what a skill can say.
        Oracle = "oracle",
        /// A static library that rules made from training tasks; nobody reads the episode.
        Library = "library",
    }
}

choice! {
    /// Whose skill an episode is scored with.
    SkillFrom {
        /// Its own (the paper).
        Own = "own",
        /// That of another, successful episode of its group; an episode without such a sibling gets none.
        Sibling = "sibling",
        /// Its own when it succeeded; that of a successful episode of its group when it failed, and its own where none did.
        OwnOrSibling = "own_or_sibling",
        /// A drawn one of an episode of another task: the placebo.
        OtherTask = "other_task",
    }
}

choice! {
    /// Which skills are written.
    SkillMode {
        /// One for the whole episode (the paper).
        Episode = "episode",
        /// Some for single steps; only these steps are scored again.
        Step = "step",
        /// Both.
        EpisodeStep = "episode_step",
    }
}

choice! {
    /// How a step with a skill of its own is scored when its episode has one too.
    Routing {
        /// With its own skill only.
        StepFirst = "step_first",
        /// With both, in two contexts whose gaps are added; `algorithm.name = "opid"` only.
        Additive = "additive",
    }
}

choice! {
    /// What the prompts of an evaluated episode hold besides the task.
    EvaluationPrompt {
        /// Nothing.
        Plain = "plain",
        /// The skill of the static library for the task.
        LibrarySkill = "library_skill",
        /// The skill that the evaluated policy wrote about its own plain episode of the same task and sample.
        OwnSkill = "own_skill",
        /// The skill of a perfect episode of the task.
        OracleSkill = "oracle_skill",
        /// The skill of a perfect episode of the panel's next task.
        OtherSkill = "other_skill",
    }
}

choice! {
    /// How the analysis prompt and the transcript in it are written.
    AnalysisStyle {
        /// Full instructions, JSON answer, as in the paper.
        Reference = "reference",
        /// A short form for small models with small contexts.
        Compact = "compact",
    }
}

choice! {
    /// How the distillation coefficient moves over the run.
    CoefficientSchedule {
        /// Always the same.
        Constant = "constant",
        /// Falls in a straight line to zero at `stop_after`, or at the last iteration.
        Linear = "linear",
    }
}

choice! {
    /// Which tokens of a response the distillation may touch.
    TokenSelection {
        /// Every response token (the paper).
        All = "all",
        /// Only the action.
        Action = "action",
        /// Everything but the action.
        Reasoning = "reasoning",
    }
}

choice! {
    /// How the learning rate moves after warm-up.
    LearningRateSchedule {
        /// Stays.
        Constant = "constant",
        /// Falls in a straight line.
        Linear = "linear",
        /// Falls along half a cosine.
        Cosine = "cosine",
    }
}

choice! {
    /// A fixed list of tasks to evaluate on.
    EvaluationSplit {
        /// Training tasks.
        Train = "train",
        /// Held-out tasks for choosing settings.
        Development = "development",
        /// New tasks in familiar rooms.
        Seen = "seen",
        /// New tasks in rooms and combinations never trained on.
        Unseen = "unseen",
    }
}

choice! {
    /// Whose metric names the TensorBoard files carry.
    MetricNames {
        /// Our own.
        Native = "native",
        /// verl's, where it has the metric.
        Verl = "verl",
        /// TRL's, where it has the metric.
        Trl = "trl",
    }
}

choice! {
    /// What happens to a fine-tuning example that is longer than the limit.
    ExampleTruncation {
        /// Tokens are cut from the prompt's beginning; the response stays whole.
        Left = "left",
        /// The example is left out and counted.
        Drop = "drop",
        /// The program stops and names the example.
        Error = "error",
    }
}

choice! {
    /// Which fine-tuned weights are kept as the result.
    Selection {
        /// Those after the last update (the paper).
        Last = "last",
        /// Those with the lowest validation loss.
        Best = "best",
    }
}

choice! {
    /// Architecture of a randomly initialised decoder.
    Family {
        /// Llama.
        Llama = "llama",
        /// Qwen2: biases on query, key and value.
        Qwen2 = "qwen2",
        /// Qwen3: normalised queries and keys.
        Qwen3 = "qwen3",
    }
}

impl Algorithm {
    /// Whether a teacher scores the sampled tokens again with a skill in the prompt.
    pub fn has_teacher(self) -> bool {
        !matches!(self, Self::Grpo | Self::SkillGrpo | Self::Gigpo)
    }
}

impl EvaluationPrompt {
    /// Whether nothing of the method is in the prompt.
    pub fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    /// Whether rules of the world write the skill.
    pub fn needs_rules(self) -> bool {
        matches!(self, Self::LibrarySkill | Self::OracleSkill | Self::OtherSkill)
    }
}

impl Analyser {
    /// Whether one of the run's own sets of weights reads the episodes.
    pub fn is_own_model(self) -> bool {
        matches!(self, Self::Policy | Self::Teacher | Self::Frozen)
    }

    /// Whether the skill is known before the episode is played.
    pub fn is_of_task(self) -> bool {
        matches!(self, Self::Oracle | Self::Library)
    }
}

impl Teacher {
    /// Whether its weights change from one iteration to the next without being the policy's.
    pub fn moves(self) -> bool {
        matches!(self, Self::Ema | Self::Periodic)
    }
}
