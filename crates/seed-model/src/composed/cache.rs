//! Keys and values on the device, in pages that sequences share.
//!
//! A position's keys and values are written once and never changed, so a fork only copies the list of where they lie. A
//! page is appended to as long as one sequence alone holds it; pages that nobody holds are used again.
//!
//! Not for: what attention does with them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Result, Tensor};

use crate::config::DecoderConfig;

/// Positions of a page.
const PAGE: usize = 16;

/// Pages of a pool at first.
const FIRST_PAGES: usize = 64;

/// Where what padding rows compute is written; nobody reads it.
pub(super) const NOWHERE: u32 = 0;

/// Pages that nobody holds.
type Free = Arc<Mutex<Vec<u32>>>;

/// The memory of all caches of a decoder and its clones.
pub(super) struct CachePool {
    layers: usize,
    width: usize,
    format: DType,
    device: Device,
    free: Free,
    tensors: Mutex<Tensors>,
}

/// Keys and values of every layer, `[pages * PAGE, width]` each.
pub(super) struct Tensors {
    pages: usize,
    keys: Vec<Tensor>,
    values: Vec<Tensor>,
}

/// A page as long as someone holds it.
#[derive(Debug)]
struct Page {
    number: u32,
    free: Free,
}

impl Drop for Page {
    fn drop(&mut self) {
        lock(&self.free).push(self.number);
    }
}

/// Where the keys and values of one sequence lie. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) struct DeviceCache {
    /// Bytes of one position.
    position_bytes: usize,
    /// Row of the pool of every position.
    slots: Vec<u32>,
    /// The pages of these rows, in their order.
    pages: Vec<Arc<Page>>,
}

/// What a panic elsewhere leaves behind is whole: lists are changed by single calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceCache {
    /// Positions held.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of what it refers to.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * self.position_bytes
    }

    pub(super) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Forgets the positions from `length` on.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.slots.truncate(length);
        let last = self.slots.last().map(|&slot| slot / PAGE as u32);
        while self.pages.last().is_some_and(|page| Some(page.number) != last) {
            self.pages.pop();
        }
    }

    /// The row after the last, where the last page has one that nobody else can have written.
    fn next_slot(&self) -> Option<u32> {
        let (page, &last) = (self.pages.last()?, self.slots.last()?);
        let next = last + 1;
        (Arc::strong_count(page) == 1 && !next.is_multiple_of(PAGE as u32)).then_some(next)
    }
}

impl CachePool {
    pub(super) fn new(config: &DecoderConfig, format: DType, device: &Device) -> Self {
        Self {
            layers: config.layers,
            width: config.key_value_heads * config.head_dim,
            format,
            device: device.clone(),
            free: Free::default(),
            tensors: Mutex::new(Tensors {
                // The page of `NOWHERE`.
                pages: 1,
                keys: Vec::new(),
                values: Vec::new(),
            }),
        }
    }

    /// The cache of an empty sequence.
    pub(super) fn cache(&self) -> DeviceCache {
        DeviceCache {
            position_bytes: 2 * self.layers * self.width * self.format.size_in_bytes(),
            slots: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// The tensors, for as long as the caller works on them.
    pub(super) fn tensors(&self) -> MutexGuard<'_, Tensors> {
        lock(&self.tensors)
    }

    /// Gives a cache rows for `count` more positions; returns them.
    pub(super) fn extend(
        &self,
        tensors: &mut Tensors,
        cache: &mut DeviceCache,
        count: usize,
    ) -> Result<Vec<u32>> {
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let row = if let Some(row) = cache.next_slot() {
                row
            } else {
                let number = self.page(tensors)?;
                cache.pages.push(Arc::new(Page {
                    number,
                    free: Arc::clone(&self.free),
                }));
                number * PAGE as u32
            };
            cache.slots.push(row);
            rows.push(row);
        }
        Ok(rows)
    }

    /// A page that nobody holds.
    fn page(&self, tensors: &mut Tensors) -> Result<u32> {
        if let Some(page) = lock(&self.free).pop() {
            return Ok(page);
        }
        let pages = (2 * tensors.pages).max(FIRST_PAGES);
        let grow = |old: Option<&Tensor>| -> Result<Tensor> {
            let grown = Tensor::zeros((pages * PAGE, self.width), self.format, &self.device)?;
            if let Some(old) = old {
                grown.slice_set(old, 0, 0)?;
            }
            Ok(grown)
        };
        for list in [&mut tensors.keys, &mut tensors.values] {
            // One after the other, so that only one is held twice.
            for layer in 0..self.layers {
                let grown = grow(list.get(layer))?;
                match list.get_mut(layer) {
                    Some(tensor) => *tensor = grown,
                    None => list.push(grown),
                }
            }
        }
        let first = tensors.pages as u32;
        tensors.pages = pages;
        // The lowest is taken first.
        lock(&self.free).extend((first + 1..pages as u32).rev());
        Ok(first)
    }
}

impl Tensors {
    /// Writes rows of keys and values, `[rows.len(), width]`, of a layer. `index` names their rows of the pool in every
    /// column.
    pub(super) fn write(&self, layer: usize, index: &Tensor, key: &Tensor, value: &Tensor) -> Result<()> {
        self.keys[layer].scatter_set(index, &key.contiguous()?, 0)?;
        self.values[layer].scatter_set(index, &value.contiguous()?, 0)
    }

    /// Keys and values of these rows of the pool.
    pub(super) fn read(&self, layer: usize, rows: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((
            self.keys[layer].index_select(rows, 0)?,
            self.values[layer].index_select(rows, 0)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DecoderConfig, Family, RopeScaling};

    fn pool() -> CachePool {
        let config = DecoderConfig {
            family: Family::Llama,
            vocabulary_size: 9,
            hidden_size: 4,
            intermediate_size: 4,
            layers: 2,
            query_heads: 1,
            key_value_heads: 1,
            head_dim: 2,
            rms_norm_epsilon: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            max_positions: 64,
            tied_embeddings: true,
            attention_bias: false,
            query_key_norm: false,
            initializer_range: 0.1,
            begin_token: None,
            end_tokens: vec![],
        };
        CachePool::new(&config, DType::F32, &Device::Cpu)
    }

    #[test]
    fn a_fork_shares_what_was_written_and_no_two_holders_write_one_row() {
        let pool = pool();
        let mut tensors = pool.tensors();
        let mut first = pool.cache();
        pool.extend(&mut tensors, &mut first, 20).unwrap();
        let mut fork = first.clone();
        let mine = pool.extend(&mut tensors, &mut first, 3).unwrap();
        let others = pool.extend(&mut tensors, &mut fork, 3).unwrap();
        assert_eq!(first.slots()[..20], fork.slots()[..20]);
        assert!(
            mine.iter().all(|row| !others.contains(row)),
            "{mine:?} {others:?}"
        );
        assert!(
            first.slots().iter().all(|&row| row >= PAGE as u32),
            "page 0 is nobody's"
        );
        // Both left the shared page where it was and began one of their own.
        assert_eq!(mine, (mine[0]..mine[0] + 3).collect::<Vec<_>>());
        assert!(mine[0].is_multiple_of(PAGE as u32));
    }

    #[test]
    fn a_page_comes_back_when_its_last_holder_lets_go() {
        let pool = pool();
        let mut tensors = pool.tensors();
        let mut cache = pool.cache();
        pool.extend(&mut tensors, &mut cache, 3 * PAGE).unwrap();
        let fork = cache.clone();
        let before = lock(&pool.free).len();
        cache.truncate(PAGE + 1);
        assert_eq!(lock(&pool.free).len(), before, "the fork still holds them");
        drop(fork);
        assert_eq!(lock(&pool.free).len(), before + 1);
        let again = pool.extend(&mut tensors, &mut cache, 1).unwrap();
        assert_eq!(again[0] % PAGE as u32, 1, "it goes on in its own page");
        cache.truncate(0);
        assert_eq!(lock(&pool.free).len(), before + 3);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn what_was_written_is_there_after_the_pool_has_grown() {
        let pool = pool();
        let mut tensors = pool.tensors();
        let mut cache = pool.cache();
        let rows = pool.extend(&mut tensors, &mut cache, 2).unwrap();
        let index = Tensor::from_slice(&[rows[0], rows[0], rows[1], rows[1]], (2, 2), &Device::Cpu).unwrap();
        let key = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &Device::Cpu).unwrap();
        tensors.write(1, &index, &key, &(&key * 10.0).unwrap()).unwrap();
        pool.extend(&mut tensors, &mut cache, 2 * FIRST_PAGES * PAGE)
            .unwrap();
        assert!(tensors.pages > FIRST_PAGES);
        let rows = Tensor::from_slice(&rows, 2, &Device::Cpu).unwrap();
        let (key, value) = tensors.read(1, &rows).unwrap();
        assert_eq!(key.to_vec2::<f32>().unwrap(), [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(value.to_vec2::<f32>().unwrap(), [[10.0, 20.0], [30.0, 40.0]]);
        let (other, _) = tensors.read(0, &rows).unwrap();
        assert_eq!(other.to_vec2::<f32>().unwrap(), [[0.0, 0.0], [0.0, 0.0]]);
    }
}
