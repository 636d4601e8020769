//! A decoder on a device: how its weights get there and back.

use std::sync::Arc;

use super::ComposedDecoder;
use crate::decoder::{Decoder, next_version};
use crate::error::ModelError;
use crate::parameters::Parameters;
use crate::placement::Place;

impl Decoder {
    /// The same decoder at another place that was checked.
    pub(crate) fn moved(mut self, place: Place) -> Result<Self, ModelError> {
        self.fetch_trained()?;
        self.device = None;
        if place.is_native() {
            // The packed copies may be of before the device's steps.
            self.update(|_| ());
        } else {
            let adapter = self.adapter.as_ref().map(|weights| &weights.adapter);
            let device = ComposedDecoder::new(&self.config, &self.layout, &self.parameters, adapter, place)?;
            self.device = Some(device);
        }
        self.version = next_version();
        Ok(self)
    }

    /// See [`Decoder::fetch`].
    pub(crate) fn fetch_trained(&mut self) -> Result<(), ModelError> {
        let Some(device) = self.device.as_mut().filter(|device| device.is_ahead()) else {
            return Ok(());
        };
        let _span = tracing::debug_span!("fetch").entered();
        match &mut self.adapter {
            Some(adapter) => adapter.update(|parameters| device.read(parameters)),
            None => device.read(Arc::make_mut(&mut self.parameters)),
        }
    }

    /// See [`Decoder::update`]; the values that `change` is given are those of the device.
    pub(crate) fn update_on_device<R>(&mut self, change: impl FnOnce(&mut Parameters) -> R) -> R {
        let fetched = self.fetch_trained();
        let result = match &mut self.adapter {
            Some(adapter) => adapter.update(change),
            None => change(Arc::make_mut(&mut self.parameters)),
        };
        if let Some(device) = &mut self.device {
            let adapter = self.adapter.as_ref().map(|weights| weights.adapter.parameters());
            device.write(adapter.unwrap_or(&self.parameters));
            if let Err(error) = fetched {
                device.poison(error.to_string());
            }
        }
        result
    }
}
