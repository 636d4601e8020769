//! Playing episodes: environments and generation driven together.
//!
//! Episodes advance independently: as soon as a response is finished its environment is stepped and the next turn is
//! submitted, so a long response never holds up the others, and a finished episode leaves at once. Episodes begin as others
//! end: one in progress holds the keys and values of its sequence, and memory must not grow with their number. Nothing an
//! episode samples depends on which others are running: its random key and the batch-invariant model see to that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seed_env::{
    ContextKind, EnvironmentPool, EpisodeFailure, EpisodeStart, Exchange, Observation, Opening, Outcome,
    PromptState, Task, World,
};
use seed_model::{Engine, FinishReason, GenerateRequest, Generation, ModelError, Sampling, SequenceState};
use seed_random::RandomKey;

use crate::{Conversation, FinishKind, RolloutError, Step, Trajectory, Truncation};

/// Rewrites a user message before it is encoded, such as placing a skill in it.
pub type Decoration = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Who generates. The in-process engine implements it; an external inference server can.
pub trait Generator {
    /// A sequence with nothing in it.
    fn empty_state(&self) -> SequenceState;
    /// Computes `tokens` after `state` without sampling, so that several requests can share the result.
    ///
    /// # Errors
    /// When the model fails.
    fn prefill(&mut self, state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError>;
    /// For each of `prompts`, a state that has read a beginning, and the ids left to read, at least one. Whoever reads
    /// prompts itself can share what they have in common.
    ///
    /// # Errors
    /// When the model fails.
    fn prefill_shared(&mut self, prompts: &[Vec<u32>]) -> Result<Vec<(SequenceState, Vec<u32>)>, ModelError> {
        Ok(prompts
            .iter()
            .map(|prompt| (self.empty_state(), prompt.clone()))
            .collect())
    }
    /// Queues a request.
    ///
    /// # Errors
    /// When the request is malformed.
    fn submit(&mut self, request: GenerateRequest) -> Result<(), ModelError>;
    /// Advances all running requests by one token; returns the finished ones.
    ///
    /// # Errors
    /// When the model fails.
    fn step(&mut self) -> Result<Vec<Generation>, ModelError>;
    /// The requests that failed alone since the last call, while the others go on. An engine in this process has none.
    fn take_failures(&mut self) -> Vec<FailedRequest> {
        Vec::new()
    }
    /// Whether nothing is queued or running.
    fn is_idle(&self) -> bool;
}

/// A request that gets no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The request's id.
    pub id: u64,
    /// What happened.
    pub problem: String,
}

impl Generator for Engine<'_> {
    fn empty_state(&self) -> SequenceState {
        SequenceState::new(self.decoder())
    }
    fn prefill(&mut self, state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError> {
        Engine::prefill(self, state, tokens)
    }
    fn prefill_shared(&mut self, prompts: &[Vec<u32>]) -> Result<Vec<(SequenceState, Vec<u32>)>, ModelError> {
        Engine::prefill_shared(self, prompts)
    }
    fn submit(&mut self, request: GenerateRequest) -> Result<(), ModelError> {
        Engine::submit(self, request)
    }
    fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        Engine::step(self)
    }
    fn is_idle(&self) -> bool {
        Engine::is_idle(self)
    }
}

/// One episode to play.
#[derive(Clone)]
pub struct EpisodeRequest {
    /// The task.
    pub task: Task,
    /// Group id; episodes of one group must share task, seed and decoration.
    pub group: u64,
    /// Position inside the group.
    pub sample: u32,
    /// Seed of the environment's own draws, equal within a group.
    pub environment_seed: u64,
    /// Randomness of this episode's sampling.
    pub key: RandomKey,
    /// Applied to the opening (transcript) or to every prompt (windowed).
    pub decoration: Option<Decoration>,
}

/// Limits on tokens.
#[derive(Clone, Copy, Debug)]
pub struct TokenBudget {
    /// Longest prompt of a windowed step; in a transcript, the longest conversation before a response.
    pub prompt: usize,
    /// Longest response.
    pub response: usize,
    /// Longest sequence; a transcript that would exceed it ends as out of tokens.
    pub context: usize,
    /// What happens to a longer windowed prompt.
    pub truncation: Truncation,
}

/// How episodes are played.
#[derive(Clone)]
pub struct RolloutOptions {
    /// What the policy sees.
    pub context: ContextKind,
    /// Exchanges shown by a windowed prompt.
    pub history_length: usize,
    /// Turn limit.
    pub max_steps: usize,
    /// Most episodes in progress at once, at least 1; the others wait for one to end. Results do not depend on it.
    pub max_active: usize,
    /// Token limits.
    pub tokens: TokenBudget,
    /// Sampling settings.
    pub sampling: Sampling,
    /// Ids that end a response.
    pub end_tokens: Arc<[u32]>,
}

/// Told to the caller as episodes finish.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Episodes finished.
    pub finished: usize,
    /// Of which successful.
    pub successes: usize,
    /// Episodes in the rollout.
    pub total: usize,
}

/// What a rollout produced.
#[derive(Debug, Default)]
pub struct RolloutReport {
    /// One trajectory per request, in request order.
    pub trajectories: Vec<Trajectory>,
    /// Tokens sampled.
    pub sampled_tokens: usize,
    /// Prompt ids computed (a prefix shared by a group counts once).
    pub prefilled_tokens: usize,
    /// Wall-clock time spent resetting and stepping environments.
    pub environment_time: Duration,
}

/// An episode in progress.
struct Episode {
    trajectory: Trajectory,
    request: EpisodeRequest,
    history: Vec<Exchange>,
    observation: Observation,
    admissible_actions: Vec<String>,
    /// Ids in the sequence so far (transcript only).
    length: usize,
    /// The model's state after the last response (transcript only).
    state: Option<SequenceState>,
    /// The turn submitted and not yet answered.
    pending: Option<Pending>,
}

impl Episode {
    fn fail(&mut self, failure: &EpisodeFailure) {
        self.trajectory.outcome = failure.outcome();
        self.trajectory.error = Some(failure.message.clone());
    }
}

struct Pending {
    prompt_text: String,
    prompt_ids: Vec<u32>,
    truncated: usize,
}

/// Plays all `requests` and returns their trajectories in order.
///
/// # Errors
/// [`RolloutError`] when generation fails or when more environments fail than the pool's error budget allows. A
/// failing episode alone is recorded with its outcome and does not stop the others.
pub fn rollout(
    generator: &mut dyn Generator,
    conversation: &Conversation,
    world: &Arc<dyn World>,
    pool: &mut EnvironmentPool,
    requests: Vec<EpisodeRequest>,
    options: &RolloutOptions,
    observer: &mut dyn FnMut(Progress),
) -> Result<RolloutReport, RolloutError> {
    let starts: Vec<EpisodeStart> = requests
        .iter()
        .enumerate()
        .map(|(slot, request)| EpisodeStart {
            slot,
            task: request.task.id.clone(),
            seed: request.environment_seed,
        })
        .collect();
    let (openings, mut environment_time) = in_environments(starts.len(), || pool.reset_all(&starts));
    let openings = openings?;
    let mut player = Player {
        conversation,
        world,
        options,
        episodes: Vec::with_capacity(requests.len()),
        report: RolloutReport::default(),
        opening: None,
    };
    for (request, opening) in requests.into_iter().zip(openings) {
        let episode = player.begin(request, opening);
        player.episodes.push(episode);
    }
    let mut progress = Progress {
        finished: 0,
        successes: 0,
        total: player.episodes.len(),
    };
    let mut waiting = 0..player.episodes.len();
    let mut playing = 0;
    loop {
        while playing < options.max_active.max(1)
            && let Some(slot) = waiting.next()
        {
            let _span = tracing::debug_span!("prompts", episodes = 1).entered();
            if player.submit_turn(generator, slot)? {
                playing += 1;
            } else {
                progress.count(&player.episodes, slot, observer);
            }
        }
        if generator.is_idle() {
            break;
        }
        let finished = generator.step()?;
        for failed in generator.take_failures() {
            let slot = failed.id as usize;
            player.give_up(failed)?;
            playing -= 1;
            player.forget(slot);
            progress.count(&player.episodes, slot, observer);
        }
        if finished.is_empty() {
            continue;
        }
        let mut actions = Vec::with_capacity(finished.len());
        let span = tracing::debug_span!("responses", episodes = finished.len()).entered();
        for generation in finished {
            actions.push(player.record(generation)?);
        }
        span.exit();
        let orders: Vec<(usize, &str)> = actions
            .iter()
            .map(|(slot, action)| (*slot, action.as_str()))
            .collect();
        let (results, time) = in_environments(orders.len(), || pool.step_all(&orders));
        environment_time += time;
        let results = results?;
        let _span = tracing::debug_span!("prompts", episodes = actions.len()).entered();
        for (&(slot, _), result) in actions.iter().zip(results) {
            if player.advance(slot, result) || !player.submit_turn(generator, slot)? {
                playing -= 1;
                player.forget(slot);
                progress.count(&player.episodes, slot, observer);
            }
        }
    }
    let mut report = player.report;
    report.environment_time = environment_time;
    report.trajectories = player
        .episodes
        .into_iter()
        .map(|episode| episode.trajectory)
        .collect();
    Ok(report)
}

/// Runs `work` on `episodes` environments and tells how long it took.
fn in_environments<T>(episodes: usize, work: impl FnOnce() -> T) -> (T, Duration) {
    let _span = tracing::debug_span!("environment", episodes).entered();
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}

impl Progress {
    fn count(&mut self, episodes: &[Episode], slot: usize, observer: &mut dyn FnMut(Progress)) {
        self.finished += 1;
        self.successes += usize::from(
            episodes
                .get(slot)
                .is_some_and(|episode| episode.trajectory.success()),
        );
        observer(*self);
    }
}

struct Player<'a> {
    conversation: &'a Conversation,
    world: &'a Arc<dyn World>,
    options: &'a RolloutOptions,
    episodes: Vec<Episode>,
    report: RolloutReport,
    /// The opening computed last: members of a group begin one after the other and share it. Later prompts share nothing:
    /// which of them follow one another depends on how many episodes are in progress, and what is computed must not.
    opening: Option<Computed>,
}

/// Ids and the model's state after them.
struct Computed {
    ids: Vec<u32>,
    state: SequenceState,
}

impl Player<'_> {
    fn begin(&self, request: EpisodeRequest, opening: Result<Opening, EpisodeFailure>) -> Episode {
        let mut episode = Episode {
            trajectory: Trajectory {
                task: request.task.id.clone(),
                split: request.task.split,
                family: request.task.family.clone(),
                group: request.group,
                sample: request.sample,
                context: self.options.context,
                task_description: String::new(),
                steps: Vec::new(),
                final_observation: String::new(),
                // Overwritten when the episode ends; what is never finished was cancelled.
                outcome: Outcome::Cancelled,
                score: None,
                error: None,
            },
            request,
            history: Vec::new(),
            observation: Observation::default(),
            admissible_actions: Vec::new(),
            length: 0,
            state: None,
            pending: None,
        };
        match opening {
            Ok(opening) => {
                episode.trajectory.task_description = opening.task_description;
                episode.observation = opening.observation;
                episode.admissible_actions = opening.admissible_actions;
            }
            Err(failure) => episode.fail(&failure),
        }
        episode
    }

    /// Submits the next turn of an episode. False when the episode is over instead.
    fn submit_turn(&mut self, generator: &mut dyn Generator, slot: usize) -> Result<bool, RolloutError> {
        let options = self.options;
        let Some(episode) = self.episodes.get_mut(slot) else {
            return Ok(false);
        };
        if episode.trajectory.error.is_some() {
            return Ok(false);
        }
        let step = episode.trajectory.steps.len();
        if step >= options.max_steps {
            episode.trajectory.outcome = Outcome::OutOfTurns;
            return Ok(false);
        }
        let dialogue = self.world.dialogue();
        let state = PromptState {
            task_description: &episode.trajectory.task_description,
            observation: &episode.observation.text,
            admissible_actions: &episode.admissible_actions,
            history: &episode.history,
            history_length: options.history_length,
        };
        let transcript = options.context == ContextKind::Transcript;
        let opening = !transcript || step == 0;
        let prompt_text = match (transcript, step) {
            (false, _) => dialogue.windowed_prompt(&state),
            (true, 0) => dialogue.transcript_opening(&state),
            (true, _) => dialogue.transcript_turn(&state),
        };
        let mut prompt_ids = if opening {
            let shown = match &episode.request.decoration {
                Some(decoration) => decoration(&prompt_text),
                None => prompt_text.clone(),
            };
            self.conversation.opening(&shown)
        } else {
            let last = episode
                .trajectory
                .steps
                .last()
                .and_then(|step| step.response_ids.last().copied());
            self.conversation.next_turn(&prompt_text, last)
        };
        let mut truncated = 0;
        if !transcript {
            let tokens = &options.tokens;
            let Some(cut) = tokens.truncation.cut(&mut prompt_ids, tokens.prompt) else {
                episode.trajectory.outcome = Outcome::OutOfTokens;
                return Ok(false);
            };
            truncated = cut;
            episode.length = 0;
        }
        // At least one id must remain for the response.
        let before = episode.length + prompt_ids.len();
        if prompt_ids.is_empty() || before > options.tokens.prompt || before >= options.tokens.context {
            episode.trajectory.outcome = Outcome::OutOfTokens;
            return Ok(false);
        }
        let (state, append) = if step == 0 {
            self.shared_opening(generator, &prompt_ids)?
        } else {
            self.report.prefilled_tokens += prompt_ids.len();
            let Some(episode) = self.episodes.get_mut(slot) else {
                return Ok(false);
            };
            (
                episode.state.take().unwrap_or_else(|| generator.empty_state()),
                prompt_ids.clone(),
            )
        };
        let Some(episode) = self.episodes.get_mut(slot) else {
            return Ok(false);
        };
        episode.length += prompt_ids.len();
        episode.pending = Some(Pending {
            prompt_text,
            prompt_ids,
            truncated,
        });
        generator.submit(GenerateRequest {
            id: slot as u64,
            state,
            append,
            max_new_tokens: options.tokens.response,
            max_length: options.tokens.context,
            sampling: options.sampling,
            stop: options.end_tokens.clone(),
            key: episode.request.key.with("step", step as u64),
        })?;
        Ok(true)
    }

    /// The state after all but the last id of an opening, computed once for a run of equal openings.
    fn shared_opening(
        &mut self,
        generator: &mut dyn Generator,
        ids: &[u32],
    ) -> Result<(SequenceState, Vec<u32>), RolloutError> {
        let Some((last, prefix)) = ids.split_last() else {
            return Ok((generator.empty_state(), Vec::new()));
        };
        self.report.prefilled_tokens += 1;
        let state = match &self.opening {
            Some(known) if known.ids == prefix => known.state.clone(),
            _ => {
                let state = generator.prefill(generator.empty_state(), prefix)?;
                self.report.prefilled_tokens += prefix.len();
                self.opening = Some(Computed {
                    ids: prefix.to_vec(),
                    state: state.clone(),
                });
                state
            }
        };
        Ok((state, vec![*last]))
    }

    /// Ends an episode whose response does not come.
    fn give_up(&mut self, failed: FailedRequest) -> Result<(), RolloutError> {
        let unknown = RolloutError::UnknownRequest {
            id: failed.id,
            episodes: self.episodes.len(),
        };
        let Some(episode) = self.episodes.get_mut(failed.id as usize) else {
            return Err(unknown);
        };
        if episode.pending.take().is_none() {
            return Err(unknown);
        }
        episode.trajectory.outcome = Outcome::EngineError;
        episode.trajectory.error = Some(failed.problem);
        Ok(())
    }

    /// Lets go of what only the next turn of an episode would have needed.
    fn forget(&mut self, slot: usize) {
        if let Some(episode) = self.episodes.get_mut(slot) {
            episode.state = None;
        }
    }

    /// Writes a response into its trajectory; returns the action to perform.
    fn record(&mut self, generation: Generation) -> Result<(usize, String), RolloutError> {
        let slot = generation.id as usize;
        let episodes = self.episodes.len();
        let unknown = RolloutError::UnknownRequest {
            id: generation.id,
            episodes,
        };
        let Some(episode) = self.episodes.get_mut(slot) else {
            return Err(unknown);
        };
        let Some(pending) = episode.pending.take() else {
            return Err(unknown);
        };
        let response_text = self.conversation.decode(&generation.token_ids);
        let projection = self.world.dialogue().project(&response_text);
        let action_tokens = match &projection.action_span {
            Some(span) => self.conversation.token_span(&generation.token_ids, span),
            None => 0..0,
        };
        episode.length += generation.token_ids.len();
        self.report.sampled_tokens += generation.token_ids.len();
        if self.options.context == ContextKind::Transcript {
            episode.state = Some(generation.state);
        }
        episode.trajectory.steps.push(Step {
            observation: episode.observation.anchor.clone(),
            prompt_text: pending.prompt_text,
            prompt_ids: pending.prompt_ids,
            prompt_ids_truncated: pending.truncated,
            response_ids: generation.token_ids,
            log_probs: generation.log_probs,
            response_text,
            finish: match generation.finish {
                FinishReason::Stop => FinishKind::Stop,
                FinishReason::Length => FinishKind::Length,
                FinishReason::Context => FinishKind::Context,
            },
            action: projection.action.clone(),
            action_tokens,
            valid: projection.valid,
            reward: 0.0,
        });
        Ok((slot, projection.action))
    }

    /// Takes in an environment's answer. True when the episode is over.
    fn advance(&mut self, slot: usize, result: Result<seed_env::Step, EpisodeFailure>) -> bool {
        let Some(episode) = self.episodes.get_mut(slot) else {
            return true;
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(failure) => {
                episode.fail(&failure);
                return true;
            }
        };
        let Some(step) = episode.trajectory.steps.last_mut() else {
            return true;
        };
        episode.trajectory.score = answer.score;
        let transition = answer.transition;
        step.reward = transition.reward;
        let outcome = if transition.terminated {
            Some(if transition.won {
                Outcome::Success
            } else {
                Outcome::Failure
            })
        } else if transition.truncated {
            Some(Outcome::OutOfTurns)
        } else if step.finish == FinishKind::Context {
            Some(Outcome::OutOfTokens)
        } else {
            None
        };
        let seen = std::mem::replace(&mut episode.observation, transition.observation);
        episode
            .trajectory
            .final_observation
            .clone_from(&episode.observation.anchor);
        episode.history.push(Exchange {
            observation: seen.text,
            action: step.action.clone(),
        });
        episode.admissible_actions = answer.admissible_actions;
        if let Some(outcome) = outcome {
            episode.trajectory.outcome = outcome;
        }
        outcome.is_some()
    }
}
