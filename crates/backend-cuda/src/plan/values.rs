//! Where the values of a program lie: those of the forward pass in buffers that they share, those that outlive it with their step.

use super::kept::Kept;
use crate::backend::Device;
use crate::driver::{Address, DeviceBuffer};
use crate::number::Number;
use gannet_ops::placement::{LastReader, Placement, last_readers};
use gannet_ops::{BatchLimits, DeviceError, Element, Program, Rows, ValueId};
use std::sync::Arc;

/// Where values lie while a step runs.
pub(super) struct Values {
    buffer_of: Vec<Option<usize>>,
    pub(super) buffers: Vec<DeviceBuffer>,
    /// Those that outlive the forward pass, which lie with their step.
    pub(super) kept: Vec<ValueId>,
}

impl Values {
    pub(super) fn new(
        device: &Arc<Device>,
        program: &Program,
        (limits, formats): (&BatchLimits, &[Number]),
    ) -> Result<Self, DeviceError> {
        let readers = last_readers(program);
        let is_kept = |id: &ValueId| {
            let (value, reader) = (program.value(*id), readers[id.0 as usize]);
            value.element == Element::F32 && reader == LastReader::Step && value.rows == Rows::Outputs
        };
        let ids = (0..program.values.len() as u32).map(ValueId);
        let kept: Vec<ValueId> = ids.filter(is_kept).collect();
        let row_bytes = |id: ValueId| {
            let value = program.value(id);
            // Ids of experts are as large as numbers.
            let is_made = value.element == Element::F32 || matches!(value.rows, Rows::Routed(_));
            let lies_here = is_made && !kept.contains(&id);
            lies_here.then(|| value.width.saturating_mul(formats[id.0 as usize].bytes()))
        };
        let Placement { buffer_of, bytes } = Placement::new(program, limits, &row_bytes);
        let buffers = bytes.into_iter().map(|bytes| DeviceBuffer::new(&device.driver, bytes));
        Ok(Self { buffer_of, buffers: buffers.collect::<Result<_, _>>()?, kept })
    }

    pub(super) fn address(&self, id: ValueId, kept: &Kept) -> Address {
        match self.buffer_of[id.0 as usize] {
            Some(buffer) => self.buffers[buffer].address(),
            // Ids lie in the step's lists.
            None => kept.address(id).unwrap_or(Address::NONE),
        }
    }
}
