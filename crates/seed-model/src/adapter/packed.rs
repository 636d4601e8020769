//! Where each matrix of an adapter lies, and the matrices packed for multiplication.
//!
//! Not for: the values' names and files.

use std::sync::{Arc, OnceLock};

use seed_kernels::matmul::{PackedMatrix, matmul};
use seed_kernels::optimiser::scale;

use super::{Adapter, Target};
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::layer::sized;
use crate::parameters::Parameters;
use crate::weights::{Direction, Linear};

/// Indices of the two matrices beside one of the base's: `A`, which lowers to the rank, and `B`, which raises again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairLayout {
    pub(crate) lower: Linear,
    pub(crate) raise: Linear,
}

/// Of one layer, by [`Target::index`].
pub(crate) type LayerPairs = [Option<PairLayout>; Target::ALL.len()];

/// The two matrices, packed for one direction.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) lower: PackedMatrix,
    pub(crate) raise: PackedMatrix,
}

/// All matrices of an adapter, packed for one direction.
struct PackedAdapter {
    direction: Direction,
    layers: Vec<[Option<Pair>; Target::ALL.len()]>,
}

impl PackedAdapter {
    fn new(layout: &[LayerPairs], parameters: &Parameters, direction: Direction) -> Self {
        let pair = |pair: PairLayout| Pair {
            lower: pair.lower.pack(parameters, direction),
            raise: pair.raise.pack(parameters, direction),
        };
        Self {
            direction,
            layers: layout
                .iter()
                .map(|pairs| pairs.map(|layout| layout.map(pair)))
                .collect(),
        }
    }

    fn refresh(&mut self, layout: &[LayerPairs], parameters: &Parameters) {
        let direction = self.direction;
        for (pair, layout) in self.layers.iter_mut().flatten().zip(layout.iter().flatten()) {
            if let (Some(pair), Some(layout)) = (pair, layout) {
                layout.lower.repack(&mut pair.lower, parameters, direction);
                layout.raise.repack(&mut pair.raise, parameters, direction);
            }
        }
    }
}

/// One layer's adapter in a pass.
#[derive(Clone, Copy)]
pub(crate) struct LayerAdapter<'a> {
    pairs: &'a [Option<Pair>; Target::ALL.len()],
    scale: f32,
}

impl<'a> LayerAdapter<'a> {
    pub(crate) fn pair(&self, target: Target) -> Option<&'a Pair> {
        self.pairs[target.index()].as_ref()
    }

    pub(crate) fn scale(&self) -> f32 {
        self.scale
    }

    /// `lowered = s·(x·Aᵀ)`, `[rows, rank]`.
    pub(crate) fn lower(&self, pair: &Pair, x: &[f32], rows: usize, lowered: &mut Vec<f32>) {
        let lowered = sized(lowered, rows * pair.lower.columns());
        matmul(x, rows, &pair.lower, lowered, false);
        scale(lowered, self.scale);
    }
}

/// An adapter as a decoder holds it.
#[derive(Clone)]
pub(crate) struct AdapterWeights {
    pub(crate) adapter: Adapter,
    pub(crate) layout: Arc<Vec<LayerPairs>>,
    packed: Arc<PackedAdapter>,
    /// Packed for the backward direction on the first gradient.
    transposed: OnceLock<Arc<PackedAdapter>>,
}

impl AdapterWeights {
    pub(crate) fn new(adapter: Adapter, config: &DecoderConfig) -> Result<Self, ModelError> {
        adapter.check(config)?;
        let (options, mut next) = (&adapter.options, 0);
        let layout: Vec<LayerPairs> = (0..config.layers)
            .map(|_| {
                let mut pairs = [None; Target::ALL.len()];
                for &target in &options.targets {
                    let (outputs, inputs) = target.sizes(config);
                    let linear = |weight, outputs, inputs| Linear {
                        weight,
                        bias: None,
                        outputs,
                        inputs,
                    };
                    pairs[target.index()] = Some(PairLayout {
                        lower: linear(next, options.rank, inputs),
                        raise: linear(next + 1, outputs, options.rank),
                    });
                    next += 2;
                }
                pairs
            })
            .collect();
        Ok(Self {
            packed: Arc::new(PackedAdapter::new(
                &layout,
                &adapter.parameters,
                Direction::Forward,
            )),
            transposed: OnceLock::new(),
            layout: Arc::new(layout),
            adapter,
        })
    }

    /// Changes the values, then packs them again.
    pub(crate) fn update<R>(&mut self, change: impl FnOnce(&mut Parameters) -> R) -> R {
        let parameters = Arc::make_mut(&mut self.adapter.parameters);
        let result = change(parameters);
        let packs = std::iter::once(&mut self.packed).chain(self.transposed.get_mut());
        for packed in packs {
            match Arc::get_mut(packed) {
                Some(packed) => packed.refresh(&self.layout, parameters),
                None => *packed = Arc::new(PackedAdapter::new(&self.layout, parameters, packed.direction)),
            }
        }
        result
    }

    /// One layer's matrices for the forward direction.
    pub(crate) fn forward(&self, layer: usize) -> LayerAdapter<'_> {
        LayerAdapter {
            pairs: &self.packed.layers[layer],
            scale: self.adapter.options.scale(),
        }
    }

    /// One layer's matrices for the backward direction.
    pub(crate) fn backward(&self, layer: usize) -> LayerAdapter<'_> {
        let transposed = self.transposed.get_or_init(|| {
            Arc::new(PackedAdapter::new(
                &self.layout,
                &self.adapter.parameters,
                Direction::Backward,
            ))
        });
        LayerAdapter {
            pairs: &transposed.layers[layer],
            scale: self.adapter.options.scale(),
        }
    }
}
