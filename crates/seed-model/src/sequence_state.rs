//! A sequence in generation: its tokens with the keys and values computed for them so far.
//!
//! Not for: computing them, which is the engine's.

use seed_kernels::attention::KeyValueCache;

#[cfg(feature = "composed")]
use crate::composed::{ComposedDecoder, DeviceCache};
use crate::decoder::Decoder;

/// Token ids of one sequence and the cached keys and values of its beginning.
///
/// Kept between the turns of a conversation, a state saves reading the earlier turns again; a clone forks a shared
/// prefix. Tokens at the end may be uncached (the last sampled one always is): the next generation reads them first,
/// so a later append continues rightly whatever ended the last turn.
#[derive(Clone)]
pub struct SequenceState {
    pub(crate) tokens: Vec<u32>,
    /// One per layer, all of the same length; none where a device holds them.
    pub(crate) caches: Vec<KeyValueCache>,
    #[cfg(feature = "composed")]
    pub(crate) device: Option<DeviceCache>,
    /// Of the decoder whose weights made the cache.
    pub(crate) version: u64,
}

impl SequenceState {
    /// The empty sequence.
    pub fn new(decoder: &Decoder) -> Self {
        let layers = if decoder.place().is_native() {
            decoder.config().layers
        } else {
            0
        };
        Self {
            tokens: Vec::new(),
            #[cfg(feature = "composed")]
            device: decoder.device.as_ref().map(ComposedDecoder::cache),
            caches: (0..layers)
                .map(|_| KeyValueCache::new(&decoder.shape, 0))
                .collect(),
            version: decoder.version(),
        }
    }

    /// All ids, prompts and responses, in order.
    pub fn token_ids(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Number of leading tokens whose keys and values are cached.
    pub fn cached(&self) -> usize {
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            return device.len();
        }
        self.caches.first().map_or(0, KeyValueCache::len)
    }

    /// Appends tokens that are to be read later.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// Forgets all tokens from position `length` on, for instance to retry a turn.
    pub fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.truncate_cache(length);
    }

    /// Forgets the keys and values from position `length` on, but not the tokens.
    pub(crate) fn truncate_cache(&mut self, length: usize) {
        if self.cached() > length {
            #[cfg(feature = "composed")]
            if let Some(device) = &mut self.device {
                device.truncate(length);
            }
            for cache in &mut self.caches {
                cache.truncate(length);
            }
        }
    }

    /// Memory of the cache in bytes; where a device holds it, with what it shares with others.
    pub fn bytes(&self) -> usize {
        #[cfg(feature = "composed")]
        if let Some(device) = &self.device {
            return device.bytes();
        }
        self.caches.iter().map(KeyValueCache::bytes).sum()
    }
}

impl std::fmt::Debug for SequenceState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SequenceState")
            .field("tokens", &self.tokens)
            .field("cached", &self.cached())
            .finish_non_exhaustive()
    }
}
