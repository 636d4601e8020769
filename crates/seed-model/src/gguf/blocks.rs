//! The element types of GGUF tensors and their blocks as f32.
//!
//! A quantised tensor is a run of blocks of equally many values, each with its own scale. The values are computed in the
//! order of operations of the `gguf` package, in f32 without fused operations: the same bits.
//!
//! Not for: quantising.

use half::f16;

use crate::directory::ElementType;

/// The element types that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorType {
    F32,
    F16,
    Bf16,
    /// 32 values of 4 bits around 8, one scale.
    Q4_0,
    /// 32 values of 4 bits, scale and minimum.
    Q4_1,
    /// 32 values of 5 bits around 16, one scale.
    Q5_0,
    /// 32 values of 5 bits, scale and minimum.
    Q5_1,
    /// 32 values of 8 bits, one scale.
    Q8_0,
    /// 256 values of 4 bits; scale and minimum of 6 bits for every 32 of them, one scale of each.
    Q4K,
    /// The same with 5 bits.
    Q5K,
    /// 256 values of 6 bits around 32, a scale of 8 bits for every 16 of them, one scale of those.
    Q6K,
}

/// Names of element types by their number in the format.
const NAMES: [(u32, &str); 24] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (28, "F64"),
    (30, "BF16"),
];

impl TensorType {
    /// The types that are read, in the order in which messages list them.
    const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    /// The type with a number of the format, if it is read.
    pub(super) fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The name of a type of the format, or its number.
    pub(super) fn name_of(number: u32) -> String {
        NAMES
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
    }

    /// The names of the types that are read.
    pub(super) fn names() -> String {
        Self::ALL
            .map(|kind| format!("`{}`", Self::name_of(kind.number())))
            .join(", ")
    }

    /// Values of one block.
    pub(super) fn block_values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    pub(super) fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 2 + 2 + 12 + 128,
            Self::Q5K => 2 + 2 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Bytes of `elements` values, which are whole blocks.
    pub(super) fn bytes_of(self, elements: usize) -> u64 {
        (elements / self.block_values()) as u64 * self.block_bytes() as u64
    }

    /// Computes the values of whole blocks.
    pub(super) fn decode(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => return ElementType::F32.decode(bytes, values),
            Self::F16 => return ElementType::F16.decode(bytes, values),
            Self::Bf16 => return ElementType::Bf16.decode(bytes, values),
            _ => {}
        }
        let blocks = bytes
            .chunks_exact(self.block_bytes())
            .zip(values.chunks_exact_mut(self.block_values()));
        for (bytes, values) in blocks {
            match self {
                // Done above.
                Self::F32 | Self::F16 | Self::Bf16 => {}
                Self::Q4_0 => {
                    let scale = half_at(bytes, 0);
                    nibbles(&bytes[2..], values, |quantum| scale * (f32::from(quantum) - 8.0));
                }
                Self::Q4_1 => {
                    let (scale, minimum) = (half_at(bytes, 0), half_at(bytes, 2));
                    nibbles(&bytes[4..], values, |quantum| {
                        scale * f32::from(quantum) + minimum
                    });
                }
                Self::Q5_0 => {
                    let scale = half_at(bytes, 0);
                    fifth_bits(&bytes[2..], values, |quantum| scale * (f32::from(quantum) - 16.0));
                }
                Self::Q5_1 => {
                    let (scale, minimum) = (half_at(bytes, 0), half_at(bytes, 2));
                    fifth_bits(&bytes[4..], values, |quantum| {
                        scale * f32::from(quantum) + minimum
                    });
                }
                Self::Q8_0 => {
                    let scale = half_at(bytes, 0);
                    for (value, &quantum) in values.iter_mut().zip(&bytes[2..]) {
                        *value = scale * f32::from(quantum.cast_signed());
                    }
                }
                Self::Q4K => four_or_five_bits(bytes, &[0; 32], &bytes[16..], values),
                Self::Q5K => four_or_five_bits(bytes, &bytes[16..48], &bytes[48..], values),
                Self::Q6K => six_bits(bytes, values),
            }
        }
    }
}

/// The half at `offset` of a block, whose length the caller has fixed.
fn half_at(bytes: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([bytes[offset], bytes[offset + 1]]).to_f32()
}

/// The low halves of all bytes, then the high ones.
fn nibbles(bytes: &[u8], values: &mut [f32], value_of: impl Fn(u8) -> f32) {
    let (low, high) = values.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = value_of(byte & 15);
        *high = value_of(byte >> 4);
    }
}

/// As [`nibbles`], with the fifth bit of value `i` in bit `i` of the first four bytes.
fn fifth_bits(bytes: &[u8], values: &mut [f32], value_of: impl Fn(u8) -> f32) {
    let (fifth, low) = bytes.split_at(4);
    for (index, value) in values.iter_mut().enumerate() {
        let nibble = low[index % 16] >> (4 * (index / 16)) & 15;
        let upper = fifth[index / 8] >> (index % 8) & 1;
        *value = value_of(nibble | upper << 4);
    }
}

/// A block of eight runs of 32 values, whose scale and minimum have six bits each in twelve bytes. The low four bits of
/// two runs share bytes; the fifth bit of run `i` is bit `i` of 32 bytes.
fn four_or_five_bits(block: &[u8], fifth: &[u8], low: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    let packed = &block[4..16];
    for (run, values) in values.chunks_exact_mut(32).enumerate() {
        let (run_scale, run_minimum) = if run < 4 {
            (packed[run] & 63, packed[run + 4] & 63)
        } else {
            (
                packed[run + 4] & 15 | packed[run - 4] >> 6 << 4,
                packed[run + 4] >> 4 | packed[run] >> 6 << 4,
            )
        };
        let (scale, minimum) = (scale * f32::from(run_scale), minimum * f32::from(run_minimum));
        for (position, value) in values.iter_mut().enumerate() {
            let nibble = low[32 * (run / 2) + position] >> (4 * (run % 2)) & 15;
            let upper = fifth[position] >> run & 1;
            *value = scale * f32::from(nibble | upper << 4) - minimum;
        }
    }
}

/// A block is two halves of 128 values, each four runs of 32. The low four bits of runs 0 and 2 share bytes, and so do
/// those of runs 1 and 3; the high two bits of all four runs share bytes.
fn six_bits(bytes: &[u8], values: &mut [f32]) {
    let (low, rest) = bytes.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, rest) = rest.split_at(16);
    let scale = half_at(rest, 0);
    for (index, value) in values.iter_mut().enumerate() {
        let (half, run, position) = (index / 128, index % 128 / 32, index % 32);
        let nibble = low[64 * half + 32 * (run % 2) + position] >> (4 * (run / 2)) & 15;
        let upper = high[32 * half + position] >> (2 * run) & 3;
        let quantum = f32::from(nibble | upper << 4) - 32.0;
        *value = scale * f32::from(scales[index / 16].cast_signed()) * quantum;
    }
}
