//! From finished trajectories to the skills that are put into prompts.
//!
//! Binds the analysis prompt, the parser, the filters and the augmentation to one configuration, and lets either the
//! policy itself or an endpoint write. The text of a trajectory is shown to the analyser as the world words it.
//!
//! Not for: what a skill does to the loss (`seed-rl`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::{Dialogue, FinishedEpisode, RuleAnnotation, SkillRules};
use seed_hindsight::{
    AnalyserError, AnalysisJob, AnalysisOptions, AnalysisRequest, Annotation, AnnotationError,
    AugmentOptions, EndpointAnalyser, EndpointOptions, Episode, EpisodeStep, FittedPrompt, Leniency,
    OutcomeLabel, ParseOptions, ParseStatus, PromptStyle, SectionFormat, SkillDefect, SkillFilterOptions,
    SkillMode, Whitespace, analysis_prompt, annotate, augment_episode, augment_step, check_skill,
    copied_ngram_rate, duplicate_rate, fitted_prompt, ground_skill, limit_words, parse_analysis,
    response_json, transcript_text,
};
use seed_model::{Decoder, Engine, FinishReason, GenerateRequest, Sampling};
use seed_random::RandomKey;
use seed_rollout::{Decoration, Generator, Trajectory};
use seed_run::Metrics;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::config::{self, SeedSection, TrainConfig};
use crate::policy::Policy;
use crate::skills::SkillSource;
use crate::trainer::options::engine_options;

/// Status of an episode that was not analysed.
pub(crate) const NOT_ASKED: &str = "not_asked";
/// Status of an episode whose skill failed its verification.
pub(crate) const UNVERIFIED: &str = "unverified";

/// Words in a run that count as copied from the transcript.
const COPIED_WORDS: usize = 6;

/// Prompts whose common beginnings are looked for at a time. Forked states hold memory while they wait; and the tokens
/// computed, which are a metric, must not depend on how many sequences are in progress.
const ANALYSES_AT_ONCE: usize = 64;

/// What became of one trajectory's analysis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// Task of the trajectory.
    pub task: String,
    /// Its group.
    pub group: u64,
    /// Its position in the group.
    pub sample: u32,
    /// Whether it reached the goal.
    pub success: bool,
    /// The analyser's answer; `None` when there was none.
    pub answer: Option<String>,
    /// What the parser said: `parsed`, or why there is no skill; `not_asked` when the episode was left out.
    pub status: String,
    /// Summary of the episode, when one was written.
    pub summary: Option<String>,
    /// The skill as it is put into prompts, after the filters; `None` when the row gets no distillation.
    pub skill: Option<String>,
    /// Skills of single steps, after the filters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub step_skills: BTreeMap<usize, String>,
    /// Where the skill is from.
    #[serde(default, skip_serializing_if = "SkillSource::is_own")]
    pub source: SkillSource,
    /// The skill of another task that the gap is measured from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placebo: Option<String>,
    /// Success rate with the skill minus without, where it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_gain: Option<f64>,
    /// Why the filters refused the skill that was written.
    #[serde(default)]
    pub defects: Vec<SkillDefect>,
    /// Sentences the grounding filter dropped.
    pub dropped_sentences: usize,
    /// Share of the skill's word runs that stand in the transcript.
    pub copied_share: f64,
    /// Steps left out of the middle of the prompt's transcript so that it fits.
    #[serde(default)]
    pub steps_left_out: usize,
    /// Prompt ids cut from the left, where not even one step fits.
    pub prompt_tokens_cut: usize,
    /// Answers read: 0 without one, more than 1 where the endpoint was asked again.
    #[serde(default)]
    pub answers_read: u32,
    /// Tokens of the last answer.
    pub answer_tokens: usize,
    /// Whether the answer hit its token limit.
    pub answer_cut: bool,
}

impl Analysis {
    /// Nothing yet about a trajectory.
    pub fn of(trajectory: &Trajectory) -> Self {
        Self {
            task: trajectory.task.to_string(),
            group: trajectory.group,
            sample: trajectory.sample,
            success: trajectory.success(),
            status: NOT_ASKED.to_owned(),
            ..Self::default()
        }
    }

    /// Whether an analyser was asked about the episode.
    pub fn was_asked(&self) -> bool {
        self.status != NOT_ASKED
    }

    /// Whether the answer could be read, whatever became of its skill: one that failed its verification could.
    pub fn was_read(&self) -> bool {
        self.status == ParseStatus::Parsed.name() || self.status == UNVERIFIED
    }

    /// Whether there is anything to put into a prompt.
    pub fn has_skill(&self) -> bool {
        self.skill.is_some() || !self.step_skills.is_empty()
    }
}

/// How episodes are analysed and skills are placed.
pub struct Hindsight {
    analysis: AnalysisOptions,
    augmentation: AugmentOptions,
    checks: SkillFilterOptions,
    section: SeedSection,
    endpoint: Option<Endpoint>,
}

/// An external analyser.
struct Endpoint {
    analyser: EndpointAnalyser,
    /// Answers read per episode before it is given up.
    parse_attempts: u32,
}

/// The text of an episode as an analyser is shown it.
pub struct EpisodeText<'a> {
    task: String,
    outcome: OutcomeLabel,
    steps: Vec<StepText<'a>>,
}

struct StepText<'a> {
    observation: Cow<'a, str>,
    response: Cow<'a, str>,
    action: Cow<'a, str>,
    valid: bool,
}

impl EpisodeText<'_> {
    fn with<T>(&self, work: impl FnOnce(&Episode<'_>) -> T) -> T {
        let steps: Vec<EpisodeStep<'_>> = self
            .steps
            .iter()
            .map(|step| EpisodeStep {
                observation: &step.observation,
                response: &step.response,
                action: &step.action,
                valid: step.valid,
                has_image: false,
            })
            .collect();
        work(&Episode {
            task_description: Some(&self.task),
            outcome: self.outcome,
            steps: &steps,
            candidate_steps: &[],
        })
    }
}

/// A trajectory as text.
pub fn trajectory_text<'a>(dialogue: &'a dyn Dialogue, trajectory: &'a Trajectory) -> EpisodeText<'a> {
    EpisodeText {
        task: trajectory.task_description.clone(),
        outcome: if trajectory.success() {
            OutcomeLabel::Success
        } else {
            OutcomeLabel::Failure
        },
        steps: trajectory
            .steps
            .iter()
            .map(|step| StepText {
                observation: dialogue.condense(&step.observation),
                response: Cow::Borrowed(&step.response_text),
                action: Cow::Borrowed(&step.action),
                valid: step.valid,
            })
            .collect(),
    }
}

/// A scripted episode as text, the way a policy's own would look. `steps` are observation, response and action.
pub(crate) fn scripted_text<'a>(
    dialogue: &'a dyn Dialogue,
    task: &str,
    won: bool,
    steps: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> EpisodeText<'a> {
    EpisodeText {
        task: task.to_owned(),
        outcome: if won {
            OutcomeLabel::Success
        } else {
            OutcomeLabel::Failure
        },
        steps: steps
            .map(|(observation, response, action)| StepText {
                observation: dialogue.condense(observation),
                response: Cow::Borrowed(response),
                action: Cow::Borrowed(action),
                valid: true,
            })
            .collect(),
    }
}

impl Hindsight {
    /// The settings of a configuration.
    ///
    /// # Errors
    /// When the endpoint's settings cannot be used.
    pub fn from_config(config: &TrainConfig) -> Result<Self, TrainError> {
        if config.asks_endpoint() {
            Self::with_endpoint(config)
        } else {
            Ok(Self::new(&config.seed))
        }
    }

    /// The settings of a configuration, with its endpoint as the analyser.
    ///
    /// # Errors
    /// When the endpoint's settings cannot be used.
    pub fn with_endpoint(config: &TrainConfig) -> Result<Self, TrainError> {
        Ok(Self {
            endpoint: Some(Endpoint {
                analyser: endpoint(config)?,
                parse_attempts: u32::try_from(config.endpoint.parse_attempts).unwrap_or(u32::MAX),
            }),
            ..Self::new(&config.seed)
        })
    }

    /// The settings of a `[seed]` table, with the policy as the analyser.
    pub fn new(section: &SeedSection) -> Self {
        let style = match section.analysis_style {
            config::AnalysisStyle::Reference => PromptStyle::Full,
            config::AnalysisStyle::Compact => PromptStyle::Compact,
        };
        let base = match style {
            PromptStyle::Full => AnalysisOptions::default(),
            PromptStyle::Compact => AnalysisOptions::compact(),
        };
        Self {
            analysis: AnalysisOptions {
                mode: match section.skill_mode {
                    config::SkillMode::Episode => SkillMode::EpisodeOnly,
                    config::SkillMode::Step => SkillMode::StepOnly,
                    config::SkillMode::EpisodeStep => SkillMode::EpisodeStep,
                },
                style,
                include_summary: section.analysis_summary,
                max_step_skills: section.max_step_skills,
                ..base
            },
            augmentation: AugmentOptions {
                format: match section.skill_style {
                    config::PromptStyle::Full => SectionFormat::Full,
                    config::PromptStyle::Compact => SectionFormat::Compact,
                },
                whitespace: if section.strip_white_space {
                    Whitespace::StripCompat
                } else {
                    Whitespace::Exact
                },
            },
            checks: SkillFilterOptions {
                min_words: section.min_skill_words,
                max_copied_run: section.max_copied_words,
                refuse_object_names: section.refuse_object_names,
            },
            section: section.clone(),
            endpoint: None,
        }
    }

    /// The analysis prompt of an episode, with all its steps.
    pub fn prompt(&self, episode: &EpisodeText<'_>) -> String {
        episode.with(|episode| analysis_prompt(episode, &self.analysis))
    }

    /// The analysis prompt of an episode as `policy` is shown it: of an episode that does not fit, steps are left out.
    pub fn fitted_prompt(
        &self,
        episode: &EpisodeText<'_>,
        config: &TrainConfig,
        decoder: &Decoder,
        policy: &Policy,
    ) -> FittedPrompt {
        let room = prompt_room(config, decoder);
        let fits = |text: &str| policy.conversation.opening(text).len() <= room;
        episode.with(|episode| fitted_prompt(episode, &self.analysis, fits))
    }

    /// The answer an analysis should give.
    pub fn record_json(&self, summary: &str, skill: &str) -> String {
        response_json(self.analysis.include_summary.then_some(summary), skill)
    }

    /// A prompt with a skill in it.
    pub fn place(&self, prompt: &str, skill: &str) -> String {
        augment_episode(prompt, skill, self.augmentation).text
    }

    /// Places `skill` in every prompt of an episode.
    pub fn decoration(&self, skill: String) -> Decoration {
        let augmentation = self.augmentation;
        Arc::new(move |prompt: &str| augment_episode(prompt, &skill, augmentation).text)
    }

    /// A prompt with a skill for its own step in it.
    pub fn place_step(&self, prompt: &str, skill: &str) -> String {
        augment_step(prompt, skill, self.augmentation).text
    }

    /// How the answer about an episode of so many steps is read.
    fn parse_options(&self, steps: usize) -> ParseOptions {
        let mode = self.analysis.mode;
        ParseOptions {
            candidate_steps: mode.has_step_skills().then(|| (0..steps).collect()),
            max_step_skills: self.analysis.max_step_skills,
            ..if self.endpoint.is_some() {
                ParseOptions::external(mode)
            } else {
                ParseOptions::on_policy(mode)
            }
        }
    }

    fn asks(&self, trajectory: &Trajectory, iteration: u64) -> bool {
        let failed_only = match self.section.failed_only_after {
            Some(after) => iteration > after as u64,
            None => self.section.failed_only,
        };
        trajectory.outcome.trains() && !trajectory.steps.is_empty() && !(failed_only && trajectory.success())
    }

    /// Analyses trajectories, one result each, in order. An analysis that fails costs its trajectory the distillation
    /// and nothing else.
    ///
    /// # Errors
    /// When the model itself fails.
    pub fn analyse(
        &mut self,
        config: &TrainConfig,
        decoder: &Decoder,
        policy: &Policy,
        dialogue: &dyn Dialogue,
        trajectories: &[Trajectory],
        iteration: u64,
        key: RandomKey,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Analysis>, TrainError> {
        let mut engine = Engine::new(decoder, engine_options(&config.rollout));
        self.analyse_on(
            &mut engine,
            config,
            decoder,
            policy,
            dialogue,
            trajectories,
            iteration,
            key,
            progress,
        )
    }

    /// The same, where a model of the run is asked on `generator`, which has the weights of `decoder`.
    ///
    /// # Errors
    /// When generation fails as a whole. An analysis that fails is recorded as such.
    pub fn analyse_on(
        &mut self,
        generator: &mut dyn Generator,
        config: &TrainConfig,
        decoder: &Decoder,
        policy: &Policy,
        dialogue: &dyn Dialogue,
        trajectories: &[Trajectory],
        iteration: u64,
        key: RandomKey,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Analysis>, TrainError> {
        let texts: Vec<EpisodeText<'_>> = trajectories
            .iter()
            .map(|trajectory| trajectory_text(dialogue, trajectory))
            .collect();
        let asked: Vec<usize> = trajectories
            .iter()
            .enumerate()
            .filter(|(_, trajectory)| self.asks(trajectory, iteration))
            .map(|(index, _)| index)
            .collect();
        let shown = asked.iter().filter_map(|&index| texts.get(index));
        progress(0, asked.len());
        let answers = if self.endpoint.is_some() {
            let jobs: Vec<AnalysisJob> = shown
                .enumerate()
                .map(|(index, text)| AnalysisJob {
                    request: AnalysisRequest {
                        id: index.to_string(),
                        // How many tokens an endpoint's model reads is not known: it is shown the whole episode.
                        prompt: self.prompt(text),
                    },
                    options: self.analysis.clone(),
                    parse: self.parse_options(text.steps.len()),
                })
                .collect();
            self.endpoint.as_mut().map_or_else(Vec::new, |endpoint| {
                annotate(&mut endpoint.analyser, &jobs, endpoint.parse_attempts)
                    .into_iter()
                    .map(Answer::whole)
                    .collect()
            })
        } else {
            let prompts: Vec<(FittedPrompt, ParseOptions)> = {
                let _span = tracing::debug_span!("fit_prompts").entered();
                shown
                    .map(|text| {
                        let prompt = self.fitted_prompt(text, config, decoder, policy);
                        (prompt, self.parse_options(text.steps.len()))
                    })
                    .collect()
            };
            ask_policy(generator, config, decoder, policy, &prompts, key, progress)?
        };
        let mut analyses: Vec<Analysis> = trajectories.iter().map(Analysis::of).collect();
        let _span = tracing::debug_span!("read_answers", answers = answers.len()).entered();
        for (index, answer) in asked.into_iter().zip(answers) {
            if let (Some(analysis), Some(text)) = (analyses.get_mut(index), texts.get(index)) {
                self.read(answer, text, analysis);
            }
        }
        Ok(analyses)
    }

    /// Analyses of trajectories by the world's rules, read and filtered as a model's answers are.
    pub fn analyse_by_rules(
        &self,
        rules: &dyn SkillRules,
        dialogue: &dyn Dialogue,
        trajectories: &[Trajectory],
        iteration: u64,
    ) -> Vec<Analysis> {
        let by_rules = |trajectory: &Trajectory| {
            let mut analysis = Analysis::of(trajectory);
            if !self.asks(trajectory, iteration) {
                return analysis;
            }
            match written_by_rules(rules, trajectory) {
                Some(written) => {
                    let mode = self.analysis.mode;
                    let text = seed_hindsight::Analysis {
                        episode_summary: self.analysis.include_summary.then_some(written.summary),
                        episode_skill: mode.has_episode_skill().then_some(written.skill),
                        step_skills: if mode.has_step_skills() {
                            written.step_skills
                        } else {
                            BTreeMap::new()
                        },
                        leniency: Leniency::Strict,
                    }
                    .to_json();
                    let parse = self.parse_options(trajectory.steps.len());
                    let answer = Answer::whole(read_answer(text, 0, false, &parse));
                    self.read(answer, &trajectory_text(dialogue, trajectory), &mut analysis);
                }
                None => "no_rule".clone_into(&mut analysis.status),
            }
            analysis
        };
        trajectories.iter().map(by_rules).collect()
    }

    /// Filters what was read from one answer.
    fn read(&self, answer: Answer, episode: &EpisodeText<'_>, analysis: &mut Analysis) {
        analysis.steps_left_out = answer.steps_left_out;
        analysis.prompt_tokens_cut = answer.prompt_tokens_cut;
        let annotation = answer.annotation;
        analysis.answers_read = annotation.parse_attempts;
        analysis.answer_tokens = annotation.completion_tokens.unwrap_or(0) as usize;
        analysis.answer_cut = annotation.truncated;
        analysis.answer = annotation.text;
        analysis.status = match &annotation.result {
            Ok(_) => ParseStatus::Parsed.name().to_owned(),
            Err(AnnotationError::Parse(error)) => error.status().name().to_owned(),
            Err(AnnotationError::Analyser(error)) => format!("failed: {error}"),
        };
        let Ok(parsed) = annotation.result else { return };
        analysis.summary = parsed.episode_summary;
        let transcript = episode.with(transcript_text);
        if let Some(skill) = parsed.episode_skill {
            let (kept, copied_share) = self.filter(&skill, &transcript, analysis);
            analysis.copied_share = copied_share;
            analysis.skill = kept;
        }
        for (step, skill) in parsed.step_skills {
            if let (Some(kept), _) = self.filter(&skill, &transcript, analysis) {
                analysis.step_skills.insert(step, kept);
            }
        }
    }

    /// The part of a skill that passes the filters, with the share of it that was copied; what was wrong with the rest is
    /// added to `analysis`.
    fn filter(&self, skill: &str, transcript: &str, analysis: &mut Analysis) -> (Option<String>, f64) {
        let mut kept = skill.to_owned();
        if self.section.grounding_filter {
            let grounded = ground_skill(skill, transcript);
            kept = grounded.text;
            analysis.dropped_sentences += grounded.dropped_sentences;
        }
        let (kept, _) = limit_words(&kept, self.section.max_skill_words);
        let copied_share = copied_ngram_rate(kept, transcript, COPIED_WORDS);
        let defects = check_skill(kept, transcript, &self.checks);
        let passes = defects.is_empty() && !kept.is_empty();
        analysis.defects.extend(defects);
        (passes.then(|| kept.to_owned()), copied_share)
    }

    /// Records how the analyses went.
    pub fn record(&self, analyses: &[Analysis], metrics: &mut Metrics) {
        let asked: Vec<&Analysis> = analyses.iter().filter(|analysis| analysis.was_asked()).collect();
        if asked.is_empty() && analyses.iter().any(Analysis::has_skill) {
            // Skills that are known from the task: nobody was asked.
            return;
        }
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        let of = |success: bool| {
            let members: Vec<&&Analysis> = asked
                .iter()
                .filter(|analysis| analysis.success == success)
                .collect();
            share(
                members.iter().filter(|analysis| analysis.was_read()).count(),
                members.len(),
            )
        };
        let skills: Vec<&str> = asked
            .iter()
            .filter_map(|analysis| analysis.skill.as_deref())
            .collect();
        let words: usize = skills.iter().map(|skill| skill.split_whitespace().count()).sum();
        let copied: f64 = asked
            .iter()
            .filter(|analysis| analysis.skill.is_some())
            .map(|analysis| analysis.copied_share)
            .sum();
        let count = |condition: &dyn Fn(&Analysis) -> bool| {
            asked.iter().filter(|analysis| condition(analysis)).count() as f64
        };
        metrics.set("analysis/requests", asked.len() as f64);
        metrics.set(
            "analysis/parse_rate",
            share(
                asked.iter().filter(|analysis| analysis.was_read()).count(),
                asked.len(),
            ),
        );
        metrics.set("analysis/parse_rate_success", of(true));
        metrics.set("analysis/parse_rate_failure", of(false));
        let accepted = asked.iter().filter(|analysis| analysis.has_skill()).count();
        metrics.set("analysis/accepted_share", share(accepted, asked.len()));
        metrics.set("analysis/skill_words_mean", share(words, skills.len()));
        metrics.set("analysis/duplicate_share", duplicate_rate(&skills));
        metrics.set("analysis/copied_share", copied / skills.len().max(1) as f64);
        metrics.set(
            "analysis/dropped_sentences",
            asked
                .iter()
                .map(|analysis| analysis.dropped_sentences)
                .sum::<usize>() as f64,
        );
        metrics.set(
            "analysis/shortened_prompts",
            count(&|analysis| analysis.steps_left_out > 0),
        );
        metrics.set(
            "analysis/truncated_prompts",
            count(&|analysis| analysis.prompt_tokens_cut > 0),
        );
        metrics.set(
            "analysis/truncated_answers",
            count(&|analysis| analysis.answer_cut),
        );
        metrics.set(
            "analysis/failed_requests",
            count(&|analysis| analysis.answer.is_none()),
        );
        metrics.set(
            "analysis/tokens_mean",
            share(
                asked.iter().map(|analysis| analysis.answer_tokens).sum(),
                asked.len(),
            ),
        );
    }
}

/// What rules write about a trajectory; `None` when they cannot read it.
pub(crate) fn written_by_rules(rules: &dyn SkillRules, trajectory: &Trajectory) -> Option<RuleAnnotation> {
    let observations: Vec<&str> = trajectory
        .steps
        .iter()
        .map(|step| step.observation.as_str())
        .chain([trajectory.final_observation.as_str()])
        .collect();
    rules.annotate(&FinishedEpisode {
        task_description: &trajectory.task_description,
        observations: &observations,
        won: trajectory.success(),
    })
}

/// An answer, and what of its episode was shown.
struct Answer {
    annotation: Annotation,
    steps_left_out: usize,
    prompt_tokens_cut: usize,
}

impl Answer {
    /// An answer about a whole episode.
    fn whole(annotation: Annotation) -> Self {
        Self {
            annotation,
            steps_left_out: 0,
            prompt_tokens_cut: 0,
        }
    }
}

/// Most ids of a prompt for the policy: room for the answer is set aside first.
fn prompt_room(config: &TrainConfig, decoder: &Decoder) -> usize {
    let context = config.model.context_length.min(decoder.config().max_positions);
    context
        .saturating_sub(config.seed.max_analysis_tokens)
        .min(config.seed.max_analysis_prompt_tokens)
        .max(1)
}

/// All analyses of an iteration are generated together.
fn ask_policy(
    generator: &mut dyn Generator,
    config: &TrainConfig,
    decoder: &Decoder,
    policy: &Policy,
    prompts: &[(FittedPrompt, ParseOptions)],
    key: RandomKey,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Answer>, TrainError> {
    let section = &config.seed;
    let mut answers: Vec<Answer> = Vec::with_capacity(prompts.len());
    let context = config.model.context_length.min(decoder.config().max_positions);
    let room = prompt_room(config, decoder);
    let span = tracing::debug_span!("encode_prompts", prompts = prompts.len()).entered();
    let mut encoded = Vec::with_capacity(prompts.len());
    for (prompt, parse) in prompts {
        let mut ids = policy.conversation.opening(&prompt.text);
        let cut = ids.len().saturating_sub(room);
        ids.drain(..cut);
        encoded.push(ids);
        answers.push(Answer {
            annotation: read_answer(String::new(), 0, false, parse),
            steps_left_out: prompt.steps_left_out,
            prompt_tokens_cut: cut,
        });
    }
    span.exit();
    let mut finished = 0;
    for (chunk, encoded) in encoded.chunks(ANALYSES_AT_ONCE).enumerate() {
        // Instructions, and a group's task and first observation, are read once.
        for (offset, (state, append)) in generator.prefill_shared(encoded)?.into_iter().enumerate() {
            let id = (chunk * ANALYSES_AT_ONCE + offset) as u64;
            generator.submit(GenerateRequest {
                id,
                state,
                append,
                max_new_tokens: section.max_analysis_tokens,
                max_length: context,
                sampling: Sampling::at_temperature(section.analyser_temperature as f32),
                stop: policy.end_tokens.clone(),
                key: key.with("request", id),
            })?;
        }
        while !generator.is_idle() {
            for generation in generator.step()? {
                finished += 1;
                let id = generation.id as usize;
                if let (Some(answer), Some((_, parse))) = (answers.get_mut(id), prompts.get(id)) {
                    answer.annotation = read_answer(
                        policy.conversation.decode(&generation.token_ids),
                        generation.token_ids.len(),
                        generation.finish != FinishReason::Stop,
                        parse,
                    );
                }
            }
            for failed in generator.take_failures() {
                finished += 1;
                if let Some(answer) = answers.get_mut(failed.id as usize) {
                    let problem = failed.problem;
                    answer.annotation = Annotation {
                        text: None,
                        truncated: false,
                        completion_tokens: None,
                        result: Err(AnalyserError::Engine { problem }.into()),
                        parse_attempts: 0,
                    };
                }
            }
            progress(finished, prompts.len());
        }
    }
    Ok(answers)
}

/// The policy's own answer: asked once, and any skill that is not empty counts.
fn read_answer(text: String, tokens: usize, truncated: bool, parse: &ParseOptions) -> Annotation {
    Annotation {
        result: parse_analysis(&text, parse).map_err(Into::into),
        text: Some(text),
        truncated,
        completion_tokens: Some(tokens as u64),
        parse_attempts: 1,
    }
}

/// The endpoint of a configuration.
///
/// # Errors
/// When its settings cannot be used.
fn endpoint(config: &TrainConfig) -> Result<EndpointAnalyser, AnalyserError> {
    let section = &config.endpoint;
    EndpointAnalyser::new(EndpointOptions {
        base_url: section.base_url.clone(),
        model: section.model.clone(),
        api_key_variable: section.key_variable(),
        temperature: config.seed.analyser_temperature,
        max_tokens: config.seed.max_analysis_tokens as u32,
        timeout_seconds: section.timeout_seconds,
        attempts: section.retries as u32 + 1,
        first_delay_milliseconds: (section.retry_delay_seconds * 1000.0) as u64,
        concurrency: section.concurrency,
        max_response_bytes: section.max_response_bytes as u64,
        ..EndpointOptions::default()
    })
}
