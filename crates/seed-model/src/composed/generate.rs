//! A step of generation: unread tokens of many sequences, with their caches on the device.

use candle_core::{Result, Tensor};

use super::cache::{NOWHERE, Tensors};
use super::forward::Block;
use super::{ComposedDecoder, DeviceShare, host};
use crate::error::ModelError;

/// The longest share of a block has at most this many times the tokens of its shortest.
const PADDING: usize = 2;

/// Places of shares that go through the layers together: those with most tokens first, each with what is not much shorter.
fn blocks(counts: &[usize]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..counts.len()).filter(|&index| counts[index] > 0).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(counts[index]));
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match blocks.last_mut() {
            // Sorted, so the first of a block is its longest.
            Some(block) if counts[block[0]] <= PADDING * counts[index] => block.push(index),
            _ => blocks.push(vec![index]),
        }
    }
    blocks
}

impl ComposedDecoder {
    /// Reads the shares and returns, for each in order, the logits after its last token where they are wanted. Where it
    /// fails, the caches hold what they held before.
    pub(crate) fn advance(
        &self,
        shares: &mut [DeviceShare<'_>],
    ) -> std::result::Result<Vec<Vec<f32>>, ModelError> {
        self.usable()?;
        let lengths: Vec<usize> = shares.iter().map(|share| share.cache.len()).collect();
        let result = self.read_shares(shares);
        if result.is_err() {
            for (share, length) in shares.iter_mut().zip(lengths) {
                share.cache.truncate(length);
            }
        }
        result.map_err(|error| self.failed(&error))
    }

    fn read_shares(&self, shares: &mut [DeviceShare<'_>]) -> Result<Vec<Vec<f32>>> {
        let counts: Vec<usize> = shares.iter().map(|share| share.tokens.len()).collect();
        let mut logits = vec![Vec::new(); shares.len()];
        let mut tensors = self.pool.tensors();
        for block in blocks(&counts) {
            self.read_block(&mut tensors, shares, &block, &mut logits)?;
        }
        Ok(logits)
    }

    /// Takes the shares at `members` through the layers together.
    fn read_block(
        &self,
        tensors: &mut Tensors,
        shares: &mut [DeviceShare<'_>],
        members: &[usize],
        logits: &mut [Vec<f32>],
    ) -> Result<()> {
        let sequences = members.len();
        let rows = members
            .iter()
            .map(|&member| shares[member].tokens.len())
            .max()
            .unwrap_or(0);
        let (mut ids, mut positions, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for &member in members {
            let DeviceShare { tokens, cache, .. } = &mut shares[member];
            let (start, padding) = (cache.len(), rows - tokens.len());
            let slots = self.pool.extend(tensors, cache, tokens.len())?;
            ids.extend_from_slice(tokens);
            ids.extend(std::iter::repeat_n(0, padding));
            positions.extend(start as u32..cache.len() as u32);
            // What padding rows compute is read by nobody; they only have to see something.
            positions.extend(std::iter::repeat_n(start as u32, padding));
            written.extend(slots);
            written.extend(std::iter::repeat_n(NOWHERE, padding));
        }
        let visible = members
            .iter()
            .map(|&member| shares[member].cache.len())
            .max()
            .unwrap_or(0);
        let mut seen = Vec::with_capacity(sequences * visible);
        for &member in members {
            let slots = shares[member].cache.slots();
            seen.extend_from_slice(slots);
            seen.extend(std::iter::repeat_n(NOWHERE, visible - slots.len()));
        }
        let (key_heads, head_dim) = (self.config.key_value_heads, self.config.head_dim);
        let width = key_heads * head_dim;
        let written = Tensor::from_vec(written, (sequences * rows, 1), &self.device)?
            .broadcast_as((sequences * rows, width))?
            .contiguous()?;
        let seen = Tensor::from_vec(seen, sequences * visible, &self.device)?;
        let tensors = &*tensors;
        let attended = |layer: usize, key: &Tensor, value: &Tensor| {
            let own = |tensor: &Tensor| tensor.detach().reshape((sequences * rows, width));
            tensors.write(layer, &written, &own(key)?, &own(value)?)?;
            let (keys, values) = tensors.read(layer, &seen)?;
            let all = |tensor: Tensor| {
                tensor
                    .reshape((sequences, visible, key_heads, head_dim))?
                    .transpose(1, 2)?
                    .contiguous()
            };
            Ok((all(keys)?, all(values)?))
        };
        let (cosines, sines) = self.rotary(&positions, sequences)?;
        let block = Block {
            sequences,
            rows,
            cosines,
            sines,
            mask: self.mask(&positions, sequences, visible)?,
            attended: &attended,
        };
        let mut hidden = self.embed(&ids)?;
        for layer in 0..self.config.layers {
            // Detached, so that no layer's intermediate values are held for a gradient that nobody takes.
            hidden = self.layer(layer, &hidden, &block)?.detach();
        }
        let wanted: Vec<(usize, u32)> = members
            .iter()
            .enumerate()
            .filter(|&(_, &member)| shares[member].wanted)
            .map(|(place, &member)| (member, (place * rows + shares[member].tokens.len() - 1) as u32))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let last: Vec<u32> = wanted.iter().map(|&(_, row)| row).collect();
        let last = Tensor::from_vec(last, wanted.len(), &self.device)?;
        let values = host(&self.head(&hidden.index_select(&last, 0)?)?)?;
        for (&(member, _), row) in wanted
            .iter()
            .zip(values.chunks_exact(self.config.vocabulary_size))
        {
            logits[member] = row.to_vec();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_in_decoding_go_together_and_long_prompts_pad_nobody_far() {
        assert_eq!(blocks(&[1, 1, 0, 1]), [vec![0, 1, 3]]);
        assert_eq!(blocks(&[1, 500, 1, 480, 1]), [vec![1, 3], vec![0, 2, 4]]);
        assert!(blocks(&[]).is_empty() && blocks(&[0]).is_empty());
        for counts in [vec![7, 3, 9, 1, 1, 64, 2], vec![5; 9], (1..40).collect()] {
            let blocks = blocks(&counts);
            let mut all: Vec<usize> = blocks.concat();
            all.sort_unstable();
            assert_eq!(all, (0..counts.len()).collect::<Vec<_>>());
            for block in blocks {
                let longest = block.iter().map(|&index| counts[index]).max().unwrap_or(0);
                let tokens: usize = block.iter().map(|&index| counts[index]).sum();
                assert!(longest * block.len() <= PADDING * tokens, "{counts:?}");
            }
        }
    }
}
