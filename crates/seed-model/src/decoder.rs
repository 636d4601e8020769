//! The decoder: parameters, their packed copies, the adapter beside them, and scoring.
//!
//! Not for: gradients (`training`), generation ([`crate::engine`]) or the numerics of a layer (`layer`).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use seed_kernels::attention::{AttentionShape, KeyValueCache};
use seed_kernels::embedding::gather;
use seed_kernels::head::{HeadPass, token_log_probs};
use seed_kernels::matmul::matmul;
use seed_kernels::norm::rms_norm;
use seed_kernels::parallel;
use seed_kernels::rotary::RotaryTable;

use crate::activations::LayerActivations;
use crate::adapter::{Adapter, AdapterWeights};
use crate::buffers::{BufferPool, Buffers, ScoredRows, TrainingBuffers, Workspace, ensure_caches};
#[cfg(feature = "composed")]
use crate::composed::ComposedDecoder;
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::gradients::Gradients;
use crate::layer::{LayerContext, forward, forward_wanted, sized};
use crate::optimiser::{AdamW, StepOutcome};
use crate::pack::Pack;
use crate::parameters::Parameters;
use crate::placement::Place;
use crate::sequence::{Scores, TokenSequence, sequence_name, validate_tokens};
use crate::weights::{Direction, Layout, PackedWeights};

/// Tokens processed together unless [`Decoder::with_pack_tokens`] says otherwise: enough rows for the matrix products,
/// few enough for the activations of a pack to stay small.
const PACK_TOKENS: usize = 1024;

/// Fewest tokens of a pack worth scoring on its own.
const SCORING_PACK_TOKENS: usize = 256;

/// Rotary positions tabulated at first; the table doubles when a longer sequence comes.
const FIRST_POSITIONS: usize = 1024;

/// Source of [`Decoder::version`]s.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// A causal decoder of the Llama family with its parameters.
///
/// All results are exact functions of parameters and tokens: the bits do not depend on threads, on the other
/// sequences of a call, or on [`Decoder::with_pack_tokens`]. A clone shares the weights until one of the two is
/// updated.
///
/// One that was [placed](Decoder::placed) on a device computes there, with results that agree with these within rounding
/// and hang on what is computed together.
pub struct Decoder {
    pub(crate) config: Arc<DecoderConfig>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) shape: AttentionShape,
    pub(crate) parameters: Arc<Parameters>,
    packed: Arc<PackedWeights>,
    /// Packed for the backward direction on the first gradient: reference copies never need it.
    transposed: OnceLock<Arc<PackedWeights>>,
    /// What is trained where there is one; everything else is then frozen.
    pub(crate) adapter: Option<AdapterWeights>,
    /// Computes in place of this project's kernels, where the decoder was placed on a device.
    #[cfg(feature = "composed")]
    pub(crate) device: Option<ComposedDecoder>,
    rotary: RwLock<Arc<RotaryTable>>,
    pub(crate) pack_tokens: usize,
    pub(crate) version: u64,
    rows_computed: AtomicU64,
    buffers: BufferPool<Buffers>,
    pub(crate) training_buffers: BufferPool<TrainingBuffers>,
}

/// Ranges of consecutive sequences with at most `limit` rows together; a longer sequence is alone.
pub(crate) fn packs(sequences: &[TokenSequence<'_>], limit: usize) -> Vec<Range<usize>> {
    let mut packs = Vec::new();
    let (mut start, mut rows) = (0, 0);
    for (index, sequence) in sequences.iter().enumerate() {
        if rows > 0 && rows + sequence.rows() > limit {
            packs.push(start..index);
            (start, rows) = (index, 0);
        }
        rows += sequence.rows();
    }
    if start < sequences.len() {
        packs.push(start..sequences.len());
    }
    packs
}

/// Lays sequences end to end, each up to its last scored token; `rows` become those that predict scored tokens, which
/// are added to `targets`.
pub(crate) fn fill(
    pack: &mut Pack,
    rows: &mut Vec<usize>,
    targets: &mut Vec<u32>,
    sequences: &[TokenSequence<'_>],
) {
    pack.clear();
    rows.clear();
    for sequence in sequences {
        let start = pack.rows();
        pack.push(&sequence.tokens[..sequence.rows()], 0);
        for &position in sequence.scored {
            rows.push(start + position as usize - 1);
            targets.push(sequence.tokens[position as usize]);
        }
    }
}

/// Appends some rows of a `[_, width]` buffer.
pub(crate) fn gather_rows(buffer: &[f32], rows: &[usize], width: usize, gathered: &mut Vec<f32>) {
    gathered.reserve_exact(rows.len() * width);
    for &row in rows {
        gathered.extend_from_slice(&buffer[row * width..(row + 1) * width]);
    }
}

impl Decoder {
    /// A decoder with these parameters.
    ///
    /// # Errors
    /// Where the configuration is not valid or the parameters do not fit it.
    pub fn new(config: DecoderConfig, parameters: Parameters) -> Result<Self, ModelError> {
        config.validate()?;
        let layout = Layout::new(&config)?;
        let shapes = config.parameter_shapes();
        for (index, (name, expected)) in shapes.iter().enumerate() {
            let found = parameters
                .index_of(name)
                .ok_or_else(|| ModelError::ParameterMissing { name: name.clone() })?;
            if found != index || parameters.shape(found) != expected {
                return Err(ModelError::ParameterShape {
                    name: name.clone(),
                    expected: expected.clone(),
                    found: parameters.shape(found).to_vec(),
                });
            }
        }
        let (frequencies, attention_scaling) = config.inverse_frequencies();
        let positions = FIRST_POSITIONS.min(config.max_positions);
        Ok(Self {
            shape: AttentionShape {
                query_heads: config.query_heads,
                key_value_heads: config.key_value_heads,
                head_dim: config.head_dim,
                scale: (1.0 / (config.head_dim as f64).sqrt()) as f32,
            },
            packed: Arc::new(PackedWeights::new(&layout, &parameters, Direction::Forward)),
            transposed: OnceLock::new(),
            adapter: None,
            #[cfg(feature = "composed")]
            device: None,
            rotary: RwLock::new(Arc::new(RotaryTable::new(
                &frequencies,
                attention_scaling,
                positions,
            ))),
            config: Arc::new(config),
            layout: Arc::new(layout),
            parameters: Arc::new(parameters),
            pack_tokens: PACK_TOKENS,
            version: next_version(),
            rows_computed: AtomicU64::new(0),
            buffers: BufferPool::default(),
            training_buffers: BufferPool::default(),
        })
    }

    /// Bounds the tokens processed together, and with them the memory of activations. A longer sequence is processed
    /// alone. Results do not depend on it.
    #[must_use]
    pub fn with_pack_tokens(mut self, tokens: usize) -> Self {
        self.pack_tokens = tokens.max(1);
        self
    }

    /// The same decoder, computing at this place. Weights go there; a copy of them stays here for
    /// [`Decoder::parameters`] and the files, and is brought up to date by [`Decoder::fetch`].
    ///
    /// # Errors
    /// Where the program was not built for the place, there is no such device, or its memory does not hold the weights.
    pub fn placed(self, place: Place) -> Result<Self, ModelError> {
        place.check()?;
        #[cfg(feature = "composed")]
        if place != self.place() {
            return self.moved(place);
        }
        Ok(self)
    }

    /// Where it computes.
    pub fn place(&self) -> Place {
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            return device.place();
        }
        Place::default()
    }

    /// Copies what was trained on a device to [`Decoder::parameters`] and [`Decoder::adapter`]; nothing happens where they
    /// are up to date.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn fetch(&mut self) -> Result<(), ModelError> {
        #[cfg(feature = "composed")]
        self.fetch_trained()?;
        Ok(())
    }

    /// Steps the optimiser where the decoder computes: [`AdamW::step`] with this project's kernels, or the same rule on
    /// the device. On a device it leaves the gradients zero, and [`Decoder::parameters`] as they were until
    /// [`Decoder::fetch`].
    ///
    /// # Errors
    /// Where the device fails; never with this project's kernels.
    pub fn optimise(
        &mut self,
        optimiser: &mut AdamW,
        gradients: &mut Gradients,
        learning_rate: f64,
    ) -> Result<StepOutcome, ModelError> {
        #[cfg(feature = "composed")]
        if let Some(device) = &mut self.device {
            self.version = next_version();
            return optimiser.step_on(device, gradients, learning_rate);
        }
        Ok(self.update(|parameters| optimiser.step(parameters, gradients, learning_rate)))
    }

    /// The same decoder with this adapter in place of any that it had: its own parameters are frozen, and
    /// [`Decoder::update`] and the gradients concern the adapter alone.
    ///
    /// # Errors
    /// Where the adapter's tensors do not fit the decoder's matrices, or a device has no memory for it.
    pub fn with_adapter(mut self, adapter: Adapter) -> Result<Self, ModelError> {
        #[cfg(feature = "composed")]
        if let Some(device) = &mut self.device {
            device.set_adapter(&adapter)?;
        }
        self.adapter = Some(AdapterWeights::new(adapter, &self.config)?);
        self.version = next_version();
        Ok(self)
    }

    /// The base alone, sharing all weights.
    #[must_use]
    pub fn without_adapter(&self) -> Self {
        let mut base = self.clone();
        if base.adapter.take().is_some() {
            #[cfg(feature = "composed")]
            if let Some(device) = &mut base.device {
                device.remove_adapter();
            }
            base.version = next_version();
        }
        base
    }

    /// The adapter, where it has one.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.adapter.as_ref().map(|weights| &weights.adapter)
    }

    /// What training changes: the adapter's values where there is one, else all parameters.
    pub fn trained(&self) -> &Parameters {
        self.adapter().map_or(&*self.parameters, Adapter::parameters)
    }

    /// Hash of everything that its results depend on: the parameters' digest or, with an adapter, one over the base, the
    /// adapter's scale and its values.
    pub fn digest(&self) -> blake3::Hash {
        self.digest_over(self.parameters.digest())
    }

    /// The same for a caller that has the parameters' digest already: beside an adapter they are frozen, and many.
    pub fn digest_over(&self, base: blake3::Hash) -> blake3::Hash {
        let Some(adapter) = self.adapter() else {
            return base;
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(base.as_bytes());
        hasher.update(&adapter.options().scale().to_le_bytes());
        hasher.update(adapter.parameters().digest().as_bytes());
        hasher.finalize()
    }

    /// The configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// The parameters; with an adapter, those of the base. Where they are trained on a device, as of the last
    /// [`Decoder::fetch`].
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Identifies the weights within this process: it differs from that of all other decoders and of this one before
    /// its last [`Decoder::update`], except for clones, which share it until updated.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Tokens this decoder has run its layers on since it was made, whether to generate, to score or to train; one that
    /// a backward pass computes a second time counts once. A clone counts from zero.
    pub fn rows_computed(&self) -> u64 {
        self.rows_computed.load(Ordering::Relaxed)
    }

    /// Changes what is [trained](Decoder::trained), then packs it again, or copies it to the device. Where copying fails,
    /// the decoder's next use says so.
    pub fn update<R>(&mut self, change: impl FnOnce(&mut Parameters) -> R) -> R {
        self.version = next_version();
        #[cfg(feature = "composed")]
        if self.device.is_some() {
            return self.update_on_device(change);
        }
        if let Some(adapter) = &mut self.adapter {
            return adapter.update(change);
        }
        let parameters = Arc::make_mut(&mut self.parameters);
        let result = change(parameters);
        let _span = tracing::debug_span!("repack").entered();
        refresh(&mut self.packed, &self.layout, parameters, Direction::Forward);
        if let Some(transposed) = self.transposed.get_mut() {
            refresh(transposed, &self.layout, parameters, Direction::Backward);
        }
        result
    }

    /// Log-prob and entropy of every scored token under `softmax(logits / temperature)`, sequence by sequence.
    ///
    /// # Errors
    /// Where a sequence or the temperature is not valid, or a score is not finite.
    pub fn score(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
    ) -> Result<Vec<Scores>, ModelError> {
        self.validate(sequences, temperature)?;
        let _span = tracing::debug_span!("score", sequences = sequences.len()).entered();
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            self.count_rows(sequences.iter().map(TokenSequence::rows).sum());
            return device.score(sequences, temperature, self.pack_tokens);
        }
        // Packs run side by side, together no larger than one of a training pass.
        let limit = (self.pack_tokens / parallel::threads()).max(SCORING_PACK_TOKENS);
        let ranges = packs(sequences, limit.min(self.pack_tokens));
        let packs: Vec<Result<Vec<Scores>, ModelError>> = parallel::map(&ranges, |range| {
            self.buffers.with(|buffers| {
                let own = &sequences[range.clone()];
                buffers.scored.targets.clear();
                fill(
                    &mut buffers.pack,
                    &mut buffers.rows,
                    &mut buffers.scored.targets,
                    own,
                );
                let rows = buffers.pack.rows();
                let _span = tracing::debug_span!("score_pack", rows, sequences = own.len()).entered();
                self.run_pack(buffers);
                let Buffers {
                    workspace, scored, ..
                } = buffers;
                std::mem::swap(&mut workspace.hidden, &mut scored.hidden);
                self.score_rows(scored, sequences, range.clone(), temperature, None)
            })
        });
        let mut scores = Vec::with_capacity(sequences.len());
        for pack in packs {
            scores.extend(pack?);
        }
        Ok(scores)
    }

    /// Logits after every token, `[tokens.len(), vocabulary_size]`. For tests and small tools.
    ///
    /// # Errors
    /// Where the tokens are not valid.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        let sequence = TokenSequence { tokens, scored: &[] };
        self.validate(&[sequence], 1.0)?;
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            self.count_rows(tokens.len());
            return device.logits(tokens);
        }
        self.buffers.with(|buffers| {
            buffers.pack.clear();
            buffers.pack.push(tokens, 0);
            buffers.rows.clear();
            buffers.rows.extend(0..tokens.len());
            self.run_pack(buffers);
            let mut logits = Vec::new();
            self.head_logits(
                &buffers.workspace.hidden,
                tokens.len(),
                &mut buffers.scored.normed,
                &mut logits,
            );
            Ok(logits)
        })
    }

    /// Runs all layers on `buffers.pack` and leaves the rows `buffers.rows`; one cache per sequence serves the layers in
    /// turn.
    fn run_pack(&self, buffers: &mut Buffers) {
        let Buffers {
            pack,
            rows,
            workspace,
            caches,
            ..
        } = buffers;
        ensure_caches(caches, pack, &self.shape, Slots::Shared, self.config.layers);
        let mut caches: Vec<&mut [KeyValueCache]> = caches.iter_mut().map(Vec::as_mut_slice).collect();
        self.run_layers(pack, rows, &mut caches, Slots::Shared, workspace);
    }

    /// Checks everything about a list of sequences that can be wrong before work begins.
    pub(crate) fn validate(
        &self,
        sequences: &[TokenSequence<'_>],
        temperature: f32,
    ) -> Result<(), ModelError> {
        if !(temperature.is_finite() && temperature > 0.0) {
            return Err(ModelError::Setting {
                owner: "scoring".to_owned(),
                setting: "temperature",
                value: temperature.to_string(),
                allowed: "a positive number",
            });
        }
        let (vocabulary_size, maximum) = (self.config.vocabulary_size, self.config.max_positions);
        for (index, sequence) in sequences.iter().enumerate() {
            sequence.validate(&|| sequence_name(index), vocabulary_size, maximum)?;
        }
        Ok(())
    }

    /// Final norm, output matrix and log-soft-max at the scored rows, whose residual stream and targets are there already;
    /// one [`Scores`] for each sequence in `range`. With `pass`, what a backward pass needs is left there.
    pub(crate) fn score_rows(
        &self,
        scored: &mut ScoredRows,
        sequences: &[TokenSequence<'_>],
        range: Range<usize>,
        temperature: f32,
        pass: Option<&mut HeadPass>,
    ) -> Result<Vec<Scores>, ModelError> {
        let width = self.config.hidden_size;
        let count = scored.targets.len();
        let _span = tracing::debug_span!("head", rows = count).entered();
        let normed = sized(&mut scored.normed, count * width);
        rms_norm(
            &scored.hidden,
            count,
            self.final_norm(),
            self.config.rms_norm_epsilon,
            normed,
        );
        let log_probs = sized(&mut scored.log_probs, count);
        let entropies = sized(&mut scored.entropies, count);
        token_log_probs(
            normed,
            count,
            &self.packed.head,
            &scored.targets,
            temperature,
            log_probs,
            entropies,
            pass,
        );
        let mut start = 0;
        range
            .map(|index| {
                let positions = sequences[index].scored;
                let rows = start..start + positions.len();
                start = rows.end;
                let scores = Scores {
                    log_probs: log_probs[rows.clone()].to_vec(),
                    entropies: entropies[rows].to_vec(),
                };
                scores.check_finite(index, positions)?;
                Ok(scores)
            })
            .collect()
    }

    /// Logits of `rows` rows of the residual stream, `[rows, vocabulary_size]`.
    pub(crate) fn head_logits(
        &self,
        hidden: &[f32],
        rows: usize,
        normed: &mut Vec<f32>,
        logits: &mut Vec<f32>,
    ) {
        let normed = sized(normed, rows * self.config.hidden_size);
        rms_norm(
            hidden,
            rows,
            self.final_norm(),
            self.config.rms_norm_epsilon,
            normed,
        );
        let logits = sized(logits, rows * self.config.vocabulary_size);
        matmul(normed, rows, &self.packed.head, logits, false);
    }

    /// Embeds the pack's tokens and runs all layers on them, keeping nothing for a backward pass; `workspace.hidden` is
    /// left with the rows `wanted`, which increase, alone. `caches[s]` are those of segment `s`.
    pub(crate) fn run_layers(
        &self,
        pack: &Pack,
        wanted: &[usize],
        caches: &mut [&mut [KeyValueCache]],
        slots: Slots,
        workspace: &mut Workspace,
    ) {
        let Workspace {
            hidden,
            activations,
            scratch,
        } = workspace;
        self.embed(pack, hidden);
        let rotary = self.rotary(pack.positions_needed());
        for layer in 0..self.config.layers {
            let context = self.layer_context(layer, &rotary, pack);
            let slot = slots.of(layer);
            if layer + 1 == self.config.layers && wanted.len() < pack.rows() {
                forward_wanted(&context, hidden, wanted, caches, slot, activations, scratch);
            } else {
                let mut activations =
                    LayerActivations::of(activations, &context.passing_widths(), pack.rows());
                forward(&context, hidden, caches, slot, &mut activations, scratch, false);
            }
        }
    }

    pub(crate) fn count_rows(&self, rows: usize) {
        self.rows_computed.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Embeddings of the pack's tokens, which every forward pass begins with.
    pub(crate) fn embed(&self, pack: &Pack, hidden: &mut Vec<f32>) {
        self.count_rows(pack.rows());
        let width = self.config.hidden_size;
        let table = self.parameters.get(self.layout.embedding);
        gather(table, width, &pack.tokens, sized(hidden, pack.rows() * width));
    }

    pub(crate) fn layer_context<'a>(
        &'a self,
        layer: usize,
        rotary: &'a RotaryTable,
        pack: &'a Pack,
    ) -> LayerContext<'a> {
        LayerContext {
            shape: &self.shape,
            epsilon: self.config.rms_norm_epsilon,
            hidden_size: self.config.hidden_size,
            intermediate_size: self.config.intermediate_size,
            parameters: &self.parameters,
            layout: &self.layout.layers[layer],
            packed: &self.packed.layers[layer],
            adapter: self.adapter.as_ref().map(|weights| weights.forward(layer)),
            rotary,
            pack,
        }
    }

    /// A rotary table of at least this many positions.
    pub(crate) fn rotary(&self, positions: usize) -> Arc<RotaryTable> {
        // The table is replaced whole, so a panic elsewhere cannot have left it half-made.
        let table = Arc::clone(&self.rotary.read().unwrap_or_else(PoisonError::into_inner));
        if table.positions() >= positions {
            return table;
        }
        let mut longer = RotaryTable::clone(&table);
        longer.ensure(positions.next_power_of_two().min(self.config.max_positions));
        let table = Arc::new(longer);
        *self.rotary.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&table);
        table
    }

    pub(crate) fn final_norm(&self) -> &[f32] {
        self.parameters.get(self.layout.final_norm)
    }

    pub(crate) fn packed(&self) -> &PackedWeights {
        &self.packed
    }

    /// The matrices packed for the backward direction.
    pub(crate) fn transposed(&self) -> &PackedWeights {
        self.transposed.get_or_init(|| {
            Arc::new(PackedWeights::new(
                &self.layout,
                &self.parameters,
                Direction::Backward,
            ))
        })
    }

    /// Checks ids which stand at `first_position..` of what `owner` names.
    pub(crate) fn validate_tokens(
        &self,
        tokens: &[u32],
        first_position: usize,
        owner: &dyn Fn() -> String,
    ) -> Result<(), ModelError> {
        validate_tokens(tokens, first_position, owner, self.config.vocabulary_size)
    }
}

impl Clone for Decoder {
    fn clone(&self) -> Self {
        Self {
            config: Arc::clone(&self.config),
            layout: Arc::clone(&self.layout),
            shape: self.shape,
            parameters: Arc::clone(&self.parameters),
            packed: Arc::clone(&self.packed),
            transposed: self.transposed.clone(),
            adapter: self.adapter.clone(),
            #[cfg(feature = "composed")]
            device: self.device.clone(),
            rotary: RwLock::new(self.rotary(0)),
            pack_tokens: self.pack_tokens,
            version: self.version,
            rows_computed: AtomicU64::new(0),
            buffers: BufferPool::default(),
            training_buffers: BufferPool::default(),
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Decoder")
            .field("config", &self.config)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Which of a segment's caches a layer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    /// Each its own.
    PerLayer,
    /// All the same, overwritten by each.
    Shared,
}

impl Slots {
    pub(crate) fn of(self, layer: usize) -> usize {
        match self {
            Self::PerLayer => layer,
            Self::Shared => 0,
        }
    }
}

pub(crate) fn next_version() -> u64 {
    VERSIONS.fetch_add(1, Ordering::Relaxed)
}

/// Packs changed parameters in place, or anew where a clone still uses the old ones.
fn refresh(packed: &mut Arc<PackedWeights>, layout: &Layout, parameters: &Parameters, direction: Direction) {
    match Arc::get_mut(packed) {
        Some(packed) => packed.refresh(layout, parameters),
        None => *packed = Arc::new(PackedWeights::new(layout, parameters, direction)),
    }
}
