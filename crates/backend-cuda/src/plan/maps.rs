//! The tensor maps by which products fetch boxes of their rows, on the device: one for each place, width and box.

use crate::driver::{Address, DeviceBuffer, Driver, TENSOR_MAP_BYTES, TensorMap};
use crate::error::CudaError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Each map and where it lies.
pub(super) struct TensorMaps {
    places: HashMap<TensorMap, usize>,
    buffer: Option<DeviceBuffer>,
}

impl TensorMaps {
    /// As if every map lay nowhere, to learn which kernels a program needs.
    pub(super) fn nowhere() -> Self {
        Self { places: HashMap::new(), buffer: None }
    }

    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        maps: impl IntoIterator<Item = TensorMap>,
    ) -> Result<Self, CudaError> {
        let (mut places, mut bytes) = (HashMap::new(), Vec::new());
        for map in maps {
            if let Entry::Vacant(vacant) = places.entry(map) {
                vacant.insert(bytes.len());
                bytes.extend(driver.tensor_map(&map)?);
            }
        }
        let buffer = DeviceBuffer::new(driver, bytes.len().max(TENSOR_MAP_BYTES))?;
        driver.upload(buffer.address(), &bytes)?;
        Ok(Self { places, buffer: Some(buffer) })
    }

    /// Where a map lies that the plan collected.
    pub(super) fn of(&self, map: &TensorMap) -> Address {
        let Some(buffer) = &self.buffer else { return Address::NONE };
        let place = self.places.get(map).expect("the plan collected every map");
        buffer.address().offset(*place)
    }
}
