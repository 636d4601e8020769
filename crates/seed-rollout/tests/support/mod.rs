//! A tiny random decoder, requests, and a generator that says what a test tells it to.

#![allow(dead_code, reason = "each test file uses a part")]
#![expect(clippy::unwrap_used, reason = "the helpers of these tests fail as tests do")]

use std::collections::BTreeMap;
use std::sync::Arc;

use seed_env::testing::{ToyOptions, ToyWorld};
use seed_env::{
    ContextKind, EnvironmentPool, ErrorBudget, HouseholdDialogue, HouseholdStyle, PoolOptions, Split, World,
};
use seed_model::{
    CHATML_TEMPLATE, CHATML_TOKENS, ChatTemplate, Decoder, DecoderConfig, Engine, EngineOptions, Family,
    FinishReason, GenerateRequest, Generation, ModelError, Parameters, RopeScaling, Sampling, SequenceState,
    TokenSequence, Tokenizer, TurnFormat, train_byte_level_bpe,
};
use seed_random::RandomKey;
use seed_rollout::{
    Conversation, EpisodeRequest, Generator, Progress, RolloutOptions, RolloutReport, Sequence, TokenBudget,
    Truncation, rollout,
};

/// What the tokenizer is made from: enough for merges inside the words of the toy world.
const TEXTS: [&str; 4] = [
    "You are in the middle of a room. Looking quickly around you, you see a box 1, a box 2, a box 3.",
    "Your task is to: find the ball. You open the box 1. The box 1 is open. In it, you see nothing.",
    "<think>open another box</think><action>open box 3</action>",
    "The ball is in a later box. The ball is in an earlier box. Nothing happens. look help open box",
];

/// A random model with its chat format.
pub(crate) struct Fixture {
    pub(crate) decoder: Decoder,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) conversation: Conversation,
    /// The token that ends a turn.
    pub(crate) end_of_turn: u32,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let tokenizer = train_byte_level_bpe(TEXTS, 330, &CHATML_TOKENS).unwrap();
        let chat = ChatTemplate::new(CHATML_TEMPLATE, &tokenizer).unwrap();
        let format = TurnFormat::derive(&chat, &tokenizer).unwrap();
        let end_of_turn = format.end_of_turn().unwrap();
        let config = DecoderConfig {
            family: Family::Llama,
            vocabulary_size: tokenizer.vocabulary_size(),
            hidden_size: 32,
            intermediate_size: 40,
            layers: 2,
            query_heads: 4,
            key_value_heads: 2,
            head_dim: 8,
            rms_norm_epsilon: 1e-6,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            max_positions: 2048,
            tied_embeddings: true,
            attention_bias: false,
            query_key_norm: false,
            initializer_range: 0.2,
            begin_token: None,
            end_tokens: vec![end_of_turn],
        };
        let parameters = Parameters::initialise(&config, RandomKey::new(11));
        Self {
            decoder: Decoder::new(config, parameters).unwrap(),
            conversation: Conversation::new(tokenizer.clone(), format),
            tokenizer,
            end_of_turn,
        }
    }

    /// Options under which a few responses end by a stop token: the end of the turn and thirty ordinary ids.
    pub(crate) fn options(&self, context: ContextKind) -> RolloutOptions {
        let mut end_tokens: Vec<u32> = (100..130).collect();
        end_tokens.push(self.end_of_turn);
        end_tokens.sort_unstable();
        RolloutOptions {
            context,
            history_length: 2,
            max_steps: 3,
            max_active: 5,
            tokens: TokenBudget {
                prompt: 900,
                response: 10,
                context: 1500,
                truncation: Truncation::Left,
            },
            sampling: Sampling::at_temperature(0.7),
            end_tokens: end_tokens.into(),
        }
    }

    pub(crate) fn play(
        &self,
        world: &Arc<dyn World>,
        requests: Vec<EpisodeRequest>,
        options: &RolloutOptions,
        engine: EngineOptions,
    ) -> RolloutReport {
        let mut engine = Engine::new(&self.decoder, engine);
        self.play_with(&mut engine, world, requests, options, &mut |_| {})
    }

    pub(crate) fn play_with(
        &self,
        generator: &mut dyn Generator,
        world: &Arc<dyn World>,
        requests: Vec<EpisodeRequest>,
        options: &RolloutOptions,
        observer: &mut dyn FnMut(Progress),
    ) -> RolloutReport {
        let mut pool = EnvironmentPool::new(world.clone(), forgiving()).unwrap();
        rollout(
            generator,
            &self.conversation,
            world,
            &mut pool,
            requests,
            options,
            observer,
        )
        .unwrap()
    }

    /// Ids of a control token in a list.
    pub(crate) fn control_tokens(&self, ids: &[u32]) -> Vec<u32> {
        ids.iter()
            .copied()
            .filter(|&id| self.tokenizer.is_control(id))
            .collect()
    }

    /// Log-probs of all responses of a sequence, at a temperature.
    pub(crate) fn score(&self, sequence: &Sequence, temperature: f32) -> Vec<f32> {
        let scored = sequence.scored_positions();
        let tokens = TokenSequence {
            tokens: &sequence.tokens,
            scored: &scored,
        };
        self.decoder
            .score(&[tokens], temperature)
            .unwrap()
            .remove(0)
            .log_probs
    }
}

/// Any share of failing episodes is allowed.
pub(crate) fn forgiving() -> PoolOptions {
    PoolOptions {
        error_budget: ErrorBudget {
            share: 1.0,
            ..ErrorBudget::default()
        },
        ..PoolOptions::default()
    }
}

/// A toy world that speaks in few words.
pub(crate) fn toy(options: ToyOptions) -> (Arc<ToyWorld>, Arc<dyn World>) {
    let dialogue = HouseholdDialogue::new(HouseholdStyle::Compact);
    let world = Arc::new(ToyWorld::new(options).with_dialogue(dialogue));
    (world.clone(), world)
}

/// `samples` episodes of each of the first `groups` training tasks, group after group.
pub(crate) fn requests(world: &dyn World, groups: usize, samples: u32) -> Vec<EpisodeRequest> {
    let key = RandomKey::new(5);
    let mut requests = Vec::new();
    for (group, task) in world.tasks(Split::Train).iter().take(groups).enumerate() {
        for sample in 0..samples {
            let task_key = key.with_text("task", task.id.as_str());
            requests.push(EpisodeRequest {
                task: task.clone(),
                group: group as u64,
                sample,
                environment_seed: task_key.to_u64(),
                key: task_key.with("sample", u64::from(sample)),
                decoration: None,
            });
        }
    }
    requests
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What a scripted generator says: the slot and its turn give the response's ids.
pub(crate) type Script<'a> = Box<dyn Fn(usize, usize) -> Vec<u32> + 'a>;

/// A generator that says what it is told, with the model's own states and log-probs, and finishes in reverse order.
pub(crate) struct Scripted<'a> {
    engine: Engine<'a>,
    script: Script<'a>,
    stop: u32,
    turns: BTreeMap<u64, usize>,
    waiting: Vec<Generation>,
    /// Slot and whole context of every request, in order.
    pub(crate) contexts: Vec<(usize, Vec<u32>)>,
}

impl<'a> Scripted<'a> {
    pub(crate) fn new(fixture: &'a Fixture, script: Script<'a>) -> Self {
        Self {
            engine: Engine::new(&fixture.decoder, EngineOptions::default()),
            script,
            stop: fixture.end_of_turn,
            turns: BTreeMap::new(),
            waiting: Vec::new(),
            contexts: Vec::new(),
        }
    }

    /// The contexts of one slot, turn by turn.
    pub(crate) fn of(&self, slot: usize) -> Vec<&[u32]> {
        self.contexts
            .iter()
            .filter(|(found, _)| *found == slot)
            .map(|(_, ids)| ids.as_slice())
            .collect()
    }
}

impl Generator for Scripted<'_> {
    fn empty_state(&self) -> SequenceState {
        SequenceState::new(self.engine.decoder())
    }

    fn prefill(&mut self, state: SequenceState, tokens: &[u32]) -> Result<SequenceState, ModelError> {
        self.engine.prefill(state, tokens)
    }

    fn submit(&mut self, request: GenerateRequest) -> Result<(), ModelError> {
        let turn = self.turns.entry(request.id).or_default();
        let token_ids = (self.script)(request.id as usize, *turn);
        *turn += 1;
        let mut context = request.state.token_ids().to_vec();
        context.extend(&request.append);
        let mut tokens = context.clone();
        tokens.extend(&token_ids);
        let scored: Vec<u32> = (context.len() as u32..tokens.len() as u32).collect();
        let sequence = TokenSequence {
            tokens: &tokens,
            scored: &scored,
        };
        let temperature = request.sampling.scoring_temperature();
        let log_probs = self
            .engine
            .decoder()
            .score(&[sequence], temperature)?
            .remove(0)
            .log_probs;
        let appended: Vec<u32> = request.append.iter().chain(&token_ids).copied().collect();
        self.waiting.push(Generation {
            id: request.id,
            state: self.engine.prefill(request.state, &appended)?,
            finish: if token_ids.last() == Some(&self.stop) {
                FinishReason::Stop
            } else {
                FinishReason::Length
            },
            kept_log_masses: vec![0.0; log_probs.len()],
            alternatives: Vec::new(),
            token_ids,
            log_probs,
        });
        self.contexts.push((request.id as usize, context));
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Generation>, ModelError> {
        let mut finished = std::mem::take(&mut self.waiting);
        finished.reverse();
        Ok(finished)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }
}
