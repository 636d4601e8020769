//! The same decoder composed of `candle-core` operations, for every device that candle has.
//!
//! A second, independent writing of the architecture: the reference of the tests and the way to a GPU. It agrees with the
//! native kernels within rounding, not bit for bit. [`crate::Decoder`] hands its work to one where it was
//! [placed](crate::Decoder::placed) on a device; nothing else uses it.
//!
//! Only operations that candle can differentiate are used: its fused norm, rotary and soft-max drop gradients without a
//! word.
//!
//! Not for: the CPU's own path.

mod cache;
mod forward;
mod generate;
mod optimiser;
mod placed;
mod training;

use std::sync::Arc;

use candle_core::{DType, Device as CandleDevice, Result as CandleResult, Tensor, Var};

pub(crate) use self::cache::DeviceCache;
pub(crate) use self::optimiser::{DeviceMoments, StepFactors};
pub(crate) use self::training::DeviceGradients;
use crate::adapter::{Adapter, Target};
use crate::config::DecoderConfig;
use crate::error::ModelError;
use crate::parameters::Parameters;
use crate::placement::{Device, Place, Precision};
use crate::weights::Layout;

/// Unread tokens of one sequence that a generation step reads on the device.
pub(crate) struct DeviceShare<'a> {
    /// The tokens; the cache holds what stands before them.
    pub(crate) tokens: &'a [u32],
    pub(crate) cache: &'a mut DeviceCache,
    /// Whether the logits after the last of them are wanted.
    pub(crate) wanted: bool,
}

/// A parameter on the device.
#[derive(Clone, Debug)]
struct Weight {
    /// What products are made with; a candle variable where it is trained.
    used: Tensor,
    /// The value in f32 that the optimiser changes, where `used` is a rounded copy of it.
    master: Option<Tensor>,
}

impl Weight {
    /// Vectors stay in f32: they are few, and norms are computed in it.
    fn new(value: Tensor, format: DType, trained: bool) -> CandleResult<Self> {
        let format = if value.rank() > 1 { format } else { DType::F32 };
        let mut used = value.to_dtype(format)?;
        if trained {
            used = Var::from_tensor(&used)?.into_inner();
        }
        Ok(Self {
            used,
            master: (trained && format != DType::F32).then_some(value),
        })
    }

    fn master(&self) -> &Tensor {
        self.master.as_ref().unwrap_or(&self.used)
    }
}

/// The two matrices beside one of the base's: indices into the adapter's weights.
type Pair = (usize, usize);

#[derive(Clone)]
struct DeviceAdapter {
    scale: f64,
    /// By layer, then by [`Target::index`].
    pairs: Arc<Vec<[Option<Pair>; 7]>>,
    weights: Arc<Vec<Weight>>,
}

impl DeviceAdapter {
    fn new(adapter: &Adapter, layers: usize, format: DType, device: &CandleDevice) -> CandleResult<Self> {
        let targets = &adapter.options().targets;
        let mut pairs = vec![[None; 7]; layers];
        for (layer, pairs) in pairs.iter_mut().enumerate() {
            for (place, target) in targets.iter().enumerate() {
                // `A` and `B` of each module in turn, layer by layer.
                let module = layer * targets.len() + place;
                pairs[target.index()] = Some((2 * module, 2 * module + 1));
            }
        }
        Ok(Self {
            scale: f64::from(adapter.options().scale()),
            pairs: Arc::new(pairs),
            weights: Arc::new(upload(adapter.parameters(), format, true, device)?),
        })
    }
}

/// A decoder's weights on one device. A clone shares them until one of the two changes.
#[derive(Clone)]
pub(crate) struct ComposedDecoder {
    config: Arc<DecoderConfig>,
    layout: Arc<Layout>,
    place: Place,
    device: CandleDevice,
    /// Of matrices and what is multiplied with them.
    format: DType,
    base: Arc<Vec<Weight>>,
    adapter: Option<DeviceAdapter>,
    /// Whether gradients of the base are computed.
    base_is_trained: bool,
    pool: Arc<cache::CachePool>,
    /// Whether the device has stepped since the host's parameters were last equal to its own.
    is_ahead: bool,
    /// Why weights could not be copied to the device, after which it must not compute.
    failure: Option<String>,
}

impl ComposedDecoder {
    /// Copies the parameters to the place.
    pub(crate) fn new(
        config: &Arc<DecoderConfig>,
        layout: &Arc<Layout>,
        parameters: &Parameters,
        adapter: Option<&Adapter>,
        place: Place,
    ) -> Result<Self, ModelError> {
        place.check()?;
        let failed = |error| failure(place, &error);
        let device = match place.device {
            Device::Cpu | Device::CandleCpu => CandleDevice::Cpu,
            Device::Cuda(number) => CandleDevice::new_cuda(number).map_err(failed)?,
            Device::Metal(number) => CandleDevice::new_metal(number).map_err(failed)?,
        };
        let format = match place.precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        };
        let base_is_trained = adapter.is_none();
        let base = upload(parameters, format, base_is_trained, &device).map_err(failed)?;
        let adapter = adapter
            .map(|adapter| DeviceAdapter::new(adapter, config.layers, format, &device))
            .transpose()
            .map_err(failed)?;
        Ok(Self {
            pool: Arc::new(cache::CachePool::new(config, format, &device)),
            config: Arc::clone(config),
            layout: Arc::clone(layout),
            place,
            device,
            format,
            base: Arc::new(base),
            adapter,
            base_is_trained,
            is_ahead: false,
            failure: None,
        })
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Puts this adapter in place of any other.
    pub(crate) fn set_adapter(&mut self, adapter: &Adapter) -> Result<(), ModelError> {
        let device = DeviceAdapter::new(adapter, self.config.layers, self.format, &self.device);
        self.adapter = Some(device.map_err(|error| self.failed(&error))?);
        Ok(())
    }

    pub(crate) fn remove_adapter(&mut self) {
        self.adapter = None;
    }

    /// The cache of an empty sequence.
    pub(crate) fn cache(&self) -> DeviceCache {
        self.pool.cache()
    }

    /// Whether [`ComposedDecoder::read`] has something new.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Copies what is trained to the host.
    pub(crate) fn read(&mut self, parameters: &mut Parameters) -> Result<(), ModelError> {
        let weights = Arc::clone(self.weights());
        for (index, weight) in weights.iter().enumerate() {
            let values = host(weight.master()).map_err(|error| self.failed(&error))?;
            parameters.get_mut(index).copy_from_slice(&values);
        }
        self.is_ahead = false;
        Ok(())
    }

    /// Copies what is trained from the host. Where that fails the decoder cannot be used any more, which its next use says.
    pub(crate) fn write(&mut self, parameters: &Parameters) {
        let trained = self.adapter.is_some() || self.base_is_trained;
        match upload(parameters, self.format, trained, &self.device) {
            Ok(weights) => self.set_weights(weights),
            Err(error) => self.poison(error.to_string()),
        }
        self.is_ahead = false;
    }

    /// Says on the next use that this is what went wrong.
    pub(crate) fn poison(&mut self, problem: String) {
        self.failure.get_or_insert(problem);
    }

    fn weights(&self) -> &Arc<Vec<Weight>> {
        self.adapter
            .as_ref()
            .map_or(&self.base, |adapter| &adapter.weights)
    }

    fn set_weights(&mut self, weights: Vec<Weight>) {
        let weights = Arc::new(weights);
        match &mut self.adapter {
            Some(adapter) => adapter.weights = weights,
            None => self.base = weights,
        }
    }

    fn pair(&self, layer: usize, target: Target) -> Option<(&DeviceAdapter, Pair)> {
        let adapter = self.adapter.as_ref()?;
        Some((adapter, adapter.pairs[layer][target.index()]?))
    }

    fn usable(&self) -> Result<(), ModelError> {
        match &self.failure {
            None => Ok(()),
            Some(problem) => Err(ModelError::Device {
                device: self.place.device.to_string(),
                problem: format!(
                    "its weights are not those of the run, since copying them failed: {problem}"
                ),
            }),
        }
    }

    fn failed(&self, error: &candle_core::Error) -> ModelError {
        failure(self.place, error)
    }
}

fn failure(place: Place, error: &candle_core::Error) -> ModelError {
    ModelError::Device {
        device: place.device.to_string(),
        problem: error.to_string(),
    }
}

fn upload(
    parameters: &Parameters,
    format: DType,
    trained: bool,
    device: &CandleDevice,
) -> CandleResult<Vec<Weight>> {
    parameters
        .iter()
        .map(|tensor| {
            let value = Tensor::from_slice(tensor.values, tensor.shape, device)?;
            Weight::new(value, format, trained)
        })
        .collect()
}

/// All values of a tensor in f32, row-major.
fn host(tensor: &Tensor) -> CandleResult<Vec<f32>> {
    tensor.detach().to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}
