//! What of a step outlives its forward pass: scores and hidden states on the device, and copies of those that the host
//! asks for.

use super::graphs::Graphs;
use crate::driver::{Address, DeviceBuffer, Driver, Landing};
use crate::error::CudaError;
use gannet_ops::TokenId;
use gannet_ops::ValueId;
use gannet_ops::sampling::Draw;
use gannet_ops::step::StepValues;
use std::sync::Arc;

/// What `argmax` gives for a row with a score that is not finite.
const NOT_FINITE: u32 = u32::MAX;

/// A step's values; serves a later step with its memory.
#[derive(Default)]
pub(super) struct Kept {
    /// For each value that outlives the forward pass, its memory.
    device: Vec<(ValueId, DeviceBuffer)>,
    /// The likeliest token of each output.
    tokens: Option<DeviceBuffer>,
    /// What the step's kernels read of the batch.
    lists: Option<DeviceBuffer>,
    /// Graphs over all of these.
    pub(super) graphs: Graphs,
    host: Vec<Fetched>,
    /// Outputs whose draws are known.
    drawn: Vec<Option<Draw>>,
    ids: Vec<(ValueId, Vec<Option<u32>>)>,
}

/// A value's rows on the host.
struct Fetched {
    id: ValueId,
    width: usize,
    /// As many as the present step has; none before it copied any.
    rows: usize,
    numbers: Landing,
}

impl Kept {
    /// Makes room for a step: bytes of each value, outputs of which a token is wanted, bytes of its lists.
    pub(super) fn prepare(
        &mut self,
        driver: &Arc<dyn Driver>,
        (values, outputs): (&[(ValueId, usize)], usize),
        list_bytes: usize,
    ) -> Result<(), CudaError> {
        self.host.iter_mut().for_each(|copy| copy.rows = 0);
        self.drawn.clear();
        self.ids.iter_mut().for_each(|(_, ids)| ids.clear());
        let graphs = &mut self.graphs;
        for (id, bytes) in values {
            match self.device.iter_mut().find(|(known, _)| known == id) {
                Some((_, buffer)) => grow(buffer, *bytes, graphs)?,
                None => self.device.push((*id, DeviceBuffer::new(driver, *bytes)?)),
            }
        }
        for (buffer, bytes) in [(&mut self.tokens, outputs * size_of::<u32>()), (&mut self.lists, list_bytes)]
        {
            match buffer {
                Some(buffer) => grow(buffer, bytes, graphs)?,
                None => *buffer = Some(DeviceBuffer::new(driver, bytes)?),
            }
        }
        Ok(())
    }

    /// Bytes of the device's memory.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.tokens.iter().chain(&self.lists);
        self.device.iter().map(|(_, buffer)| buffer).chain(lists).map(DeviceBuffer::bytes).sum()
    }

    /// Where a value lies, where it is one that outlives the forward pass.
    pub(super) fn address(&self, id: ValueId) -> Option<Address> {
        self.device.iter().find(|(known, _)| *known == id).map(|(_, buffer)| buffer.address())
    }

    /// Where the step's lists lie.
    pub(super) fn lists(&self) -> Address {
        self.lists.as_ref().expect("the step was prepared").address()
    }

    /// Where the likeliest tokens go.
    pub(super) fn tokens(&self) -> Address {
        self.tokens.as_ref().expect("the step was prepared").address()
    }

    /// Copies a value to the host, once.
    pub(super) fn fetch(
        &mut self,
        driver: &Arc<dyn Driver>,
        id: ValueId,
        (rows, width): (usize, usize),
    ) -> Result<(), CudaError> {
        let address = self.address(id).expect("the value outlives the forward pass");
        let place = self.host.iter().position(|copy| copy.id == id).unwrap_or(self.host.len());
        if place == self.host.len() {
            self.host.push(Fetched { id, width, rows: 0, numbers: Landing::new(driver) });
        }
        let copy = &mut self.host[place];
        if copy.rows == 0 {
            copy.numbers.fetch(address, rows * width)?;
            copy.rows = rows;
        }
        Ok(())
    }

    /// Takes over a draw that was made of a row which [`Kept::fetch`] copied.
    pub(super) fn take_draw(&mut self, output: usize, draw: Draw) {
        self.drawn.resize(self.drawn.len().max(output + 1), None);
        self.drawn[output] = Some(draw);
    }

    /// Takes over the tokens that the device found, one an output.
    pub(super) fn take_tokens(&mut self, driver: &dyn Driver, outputs: usize) -> Result<(), CudaError> {
        let mut bytes = vec![0; outputs * size_of::<u32>()];
        driver.download(&mut bytes, self.tokens())?;
        let ids = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        self.drawn.extend(ids.map(|id| {
            let token = (id != NOT_FINITE).then_some(TokenId(id));
            Some(Draw { token, not_finite: id == NOT_FINITE, running: None })
        }));
        Ok(())
    }
}

/// Makes room where there is too little, after the graphs that name what was there.
fn grow(buffer: &mut DeviceBuffer, bytes: usize, graphs: &mut Graphs) -> Result<(), CudaError> {
    if buffer.bytes() < bytes {
        graphs.clear();
    }
    buffer.grow(bytes)
}

impl StepValues for Kept {
    fn drawn(&self, _value: ValueId, row: usize) -> Option<Draw> {
        self.drawn.get(row).copied().flatten()
    }

    fn row(&self, value: ValueId, row: usize) -> &[f32] {
        let copied = self.host.iter().find(|copy| copy.id == value && row < copy.rows);
        let Fetched { width, numbers, .. } = copied.expect("what the host reads was copied");
        &numbers.numbers()[row * width..][..*width]
    }

    fn ids(&self, value: ValueId) -> &[Option<u32>] {
        self.ids.iter().find(|(id, _)| *id == value).map_or(&[], |(_, ids)| ids)
    }

    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        let known = self.ids.iter().position(|(id, _)| *id == value);
        let place = known.unwrap_or_else(|| {
            self.ids.push((value, Vec::new()));
            self.ids.len() - 1
        });
        &mut self.ids[place].1
    }
}
