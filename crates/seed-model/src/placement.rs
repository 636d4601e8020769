//! Where a decoder computes, and in which number format.
//!
//! Not for: computing there; see [`crate::Decoder::placed`].

use std::fmt;
use std::str::FromStr;

use crate::error::ModelError;

/// What computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The processor, with this project's own kernels: bit-equal everywhere, and what everything else is measured by.
    #[default]
    Cpu,
    /// The processor, with candle's operations: the way of the devices below, without one. Needs the feature `composed`.
    CandleCpu,
    /// The NVIDIA GPU of this number. Needs the feature `cuda`.
    Cuda(usize),
    /// The Apple GPU of this number. Needs the feature `metal`.
    Metal(usize),
}

/// The number format of weights and of what is multiplied with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32 bits throughout.
    #[default]
    F32,
    /// Matrices, cached keys and values, and both sides of every matrix product in bfloat16; sums between layers, norms,
    /// soft-max, gradient sums, the weights that the optimiser changes and its moments in 32 bits.
    Bf16,
}

/// A device with the precision used there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// What computes.
    pub device: Device,
    /// In which format.
    pub precision: Precision,
}

impl Place {
    /// Whether this project's own kernels compute, whose results are the same bits everywhere.
    pub fn is_native(self) -> bool {
        self.device == Device::Cpu
    }

    /// Whether a build like this one can compute there; whether there is such a device shows when it is used.
    ///
    /// # Errors
    /// [`ModelError::DeviceNotBuilt`] with the feature that is missing; [`ModelError::Setting`] for bf16 with the own
    /// kernels.
    pub fn check(self) -> Result<(), ModelError> {
        let (feature, is_built) = match self.device {
            Device::Cpu if self.precision == Precision::F32 => return Ok(()),
            Device::Cpu => {
                return Err(ModelError::Setting {
                    owner: "the device `cpu`".to_owned(),
                    setting: "precision",
                    value: "bf16".to_owned(),
                    allowed: "f32; bf16 is for the other devices",
                });
            }
            Device::CandleCpu => ("composed", cfg!(feature = "composed")),
            Device::Cuda(_) => ("cuda", cfg!(feature = "cuda")),
            Device::Metal(_) => ("metal", cfg!(feature = "metal")),
        };
        if is_built {
            Ok(())
        } else {
            Err(ModelError::DeviceNotBuilt {
                device: self.device.to_string(),
                feature,
            })
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::CandleCpu => formatter.write_str("candle-cpu"),
            Self::Cuda(number) => write!(formatter, "cuda:{number}"),
            Self::Metal(number) => write!(formatter, "metal:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = ModelError;

    /// `cpu`, `candle-cpu`, `cuda`, `cuda:1`, `metal`, `metal:1`; without a number the first is meant.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let (kind, number) = match text.split_once(':') {
            Some((kind, number)) => (kind, number.parse().ok()),
            None => (text, Some(0)),
        };
        match (kind, number) {
            ("cpu", _) if text == kind => Ok(Self::Cpu),
            ("candle-cpu", _) if text == kind => Ok(Self::CandleCpu),
            ("cuda", Some(number)) => Ok(Self::Cuda(number)),
            ("metal", Some(number)) => Ok(Self::Metal(number)),
            _ => Err(ModelError::Setting {
                owner: "the model".to_owned(),
                setting: "device",
                value: text.to_owned(),
                allowed: "`cpu`, `candle-cpu`, `cuda:0` or `metal:0`, with the number of the device",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_back_as_they_are_written() {
        for device in [
            Device::Cpu,
            Device::CandleCpu,
            Device::Cuda(0),
            Device::Cuda(13),
            Device::Metal(1),
        ] {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "candle-cpu:0"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_that_was_not_built_in_is_refused_with_the_way_to_build_it() {
        let place = |device, precision| Place { device, precision };
        assert!(place(Device::Cpu, Precision::F32).check().is_ok());
        let message = place(Device::Cpu, Precision::Bf16)
            .check()
            .unwrap_err()
            .to_string();
        assert!(message.contains("bf16 is for the other devices"), "{message}");
        if !cfg!(feature = "metal") {
            let message = place(Device::Metal(0), Precision::F32)
                .check()
                .unwrap_err()
                .to_string();
            assert_eq!(
                message,
                "this program was built without `metal:0`: build it with `cargo build --release --features metal` \
                 (docs/models.md says what that needs), or set `model.device = \"cpu\"`"
            );
        }
    }
}
