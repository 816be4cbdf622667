//! Recurrent state of one layer: two banks a slot, snapshots, and the drafts that wait to be confirmed.
//!
//! A unit is one copy of the state: the convolution's window, then the delta rule's matrices in the
//! arrangement of their kernel. Drafted rows are always rolled back by a replay: their inputs are kept, and
//! the confirmed ones run again over the state before them. A layout that asks for candidates gets the same
//! bits.

use crate::backend::unknown;
use crate::kernels::Crew;
use crate::kernels::gated_delta_rule::{Inputs, Start, gated_delta_rule};
use crate::memory::Buffer;
use gannet_ops::{DeltaRule, DeviceError, RecurrentBank, RecurrentLayout};

pub(crate) struct Slots {
    layout: RecurrentLayout,
    slots: usize,
    /// Units of the banks, then of the snapshots.
    units: Buffer,
    /// All zero: the window at the start of a sequence.
    zeros: Vec<f32>,
    /// The matrices that drafted rows leave behind, which nobody reads.
    discarded: Vec<f32>,
}

/// The rows of one sequence that wait to be confirmed, in one part of one layer.
pub(crate) struct Draft {
    pub(crate) entry: usize,
    pub(crate) sequence: usize,
    /// The state before the rows.
    pub(crate) read: Option<RecurrentBank>,
    /// Where the state after the confirmed ones goes.
    pub(crate) write: RecurrentBank,
    pub(crate) inputs: DraftInputs,
}

/// The inputs of drafted rows.
pub(crate) enum DraftInputs {
    /// The window before the rows, then the rows: `[kernel - 1 + rows, channels]`.
    Window(Vec<f32>),
    /// k, v, g and b of the rows.
    Delta { rule: DeltaRule, k: Vec<f32>, v: Vec<f32>, g: Vec<f32>, b: Vec<f32> },
}

impl Draft {
    /// Bytes of its inputs.
    pub(crate) fn bytes(&self) -> u64 {
        let elements = match &self.inputs {
            DraftInputs::Window(inputs) => inputs.len(),
            DraftInputs::Delta { k, v, g, b, .. } => k.len() + v.len() + g.len() + b.len(),
        };
        (elements * size_of::<f32>()) as u64
    }
}

impl Slots {
    pub(crate) fn new(layout: &RecurrentLayout, slots: u32, snapshots: u32) -> Result<Self, DeviceError> {
        let (window, matrices) = layout.elements();
        let units = (2 * slots as usize).saturating_add(snapshots as usize);
        let bytes = (window + matrices).saturating_mul(units).saturating_mul(size_of::<f32>());
        let units = Buffer::zeroed(bytes, || format!("{slots} recurrent slots and {snapshots} snapshots"))?;
        let (zeros, discarded) = (vec![0.0; window], Vec::new());
        Ok(Self { layout: layout.clone(), slots: slots as usize, units, zeros, discarded })
    }

    pub(crate) fn layout(&self) -> &RecurrentLayout {
        &self.layout
    }

    /// Bytes in memory: of banks and of snapshots.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let banks = 2 * self.slots * self.unit_elements() * size_of::<f32>();
        (self.units.resident_bytes(0..banks), self.units.resident_bytes(banks..self.units.bytes()))
    }

    /// The window that a sequence starts from.
    pub(crate) fn window(&self, bank: Option<RecurrentBank>) -> Result<&[f32], DeviceError> {
        let Some(bank) = bank else { return Ok(&self.zeros) };
        let start = self.unit(bank)? * self.unit_elements();
        Ok(&self.units.as_slice()[start..start + self.zeros.len()])
    }

    /// Makes the window of a bank the last of the inputs before a sequence's rows, which are those of another bank, and of
    /// its rows `[rows, channels]`.
    pub(crate) fn write_window(
        &mut self,
        read: Option<RecurrentBank>,
        write: RecurrentBank,
        rows: &[f32],
    ) -> Result<(), DeviceError> {
        let (window, elements) = (self.zeros.len(), self.unit_elements());
        let from = read.map(|bank| self.unit(bank)).transpose()?.map(|unit| unit * elements);
        let to = self.unit(write)? * elements;
        let new = rows.len().min(window);
        let kept = window - new;
        let units: &mut [f32] = self.units.as_mut_slice();
        match from {
            Some(from) => units.copy_within(from + new..from + window, to),
            None => units[to..to + kept].fill(0.0),
        }
        units[to + kept..to + window].copy_from_slice(&rows[rows.len() - new..]);
        Ok(())
    }

    /// The matrices to start from and those to write, which may be the same.
    pub(crate) fn matrices(
        &mut self,
        read: Option<RecurrentBank>,
        write: RecurrentBank,
    ) -> Result<(Start<'_>, &mut [f32]), DeviceError> {
        let read = read.map(|bank| self.unit(bank)).transpose()?;
        let (write, elements, window) = (self.unit(write)?, self.unit_elements(), self.zeros.len());
        let units: &mut [f32] = self.units.as_mut_slice();
        let Some(read) = read.filter(|read| *read != write) else {
            let start = if read.is_some() { Start::InPlace } else { Start::Zero };
            return Ok((start, &mut units[write * elements + window..(write + 1) * elements]));
        };
        let (low, high) = units.split_at_mut(read.max(write) * elements);
        let lower = &mut low[read.min(write) * elements..][..elements];
        let (from, to) =
            if read < write { (lower, &mut high[..elements]) } else { (&mut high[..elements], lower) };
        Ok((Start::Copy(&from[window..]), &mut to[window..]))
    }

    /// The matrices to start from, and room for what drafted rows leave behind.
    pub(crate) fn draft_matrices(
        &mut self,
        read: Option<RecurrentBank>,
    ) -> Result<(Start<'_>, &mut [f32]), DeviceError> {
        let (elements, window) = (self.unit_elements(), self.zeros.len());
        self.discarded.resize(elements - window, 0.0);
        let Some(bank) = read else { return Ok((Start::Zero, &mut self.discarded)) };
        let start = self.unit(bank)? * elements;
        Ok((Start::Copy(&self.units.as_slice()[start + window..start + elements]), &mut self.discarded))
    }

    /// Moves the state after so many drafted rows into the bank that waits for it.
    pub(crate) fn settle(
        &mut self,
        crew: &mut Crew<'_>,
        draft: &Draft,
        rows: usize,
    ) -> Result<(), DeviceError> {
        match &draft.inputs {
            DraftInputs::Window(inputs) => {
                let end = rows * self.layout.conv.channels + self.zeros.len();
                self.write_window(draft.read, draft.write, &inputs[..end])
            }
            DraftInputs::Delta { rule, k, v, g, b } => {
                let sizes = self.layout.state;
                let (start, state) = self.matrices(draft.read, draft.write)?;
                // The results of the rows are known since they ran first.
                let mut unread = vec![0.0; v.len()];
                let inputs = Inputs { q: k, k, v, g, b };
                gated_delta_rule(crew, (rule, sizes), inputs, 0..rows, start, state, &mut unread);
                Ok(())
            }
        }
    }

    pub(crate) fn snapshot(&mut self, bank: RecurrentBank, snapshot: usize) -> Result<(), DeviceError> {
        let from = self.unit(bank)?;
        self.copy(from, 2 * self.slots + snapshot);
        Ok(())
    }

    pub(crate) fn restore(&mut self, snapshot: usize, bank: RecurrentBank) -> Result<(), DeviceError> {
        let to = self.unit(bank)?;
        self.copy(2 * self.slots + snapshot, to);
        Ok(())
    }

    fn copy(&mut self, from: usize, to: usize) {
        let elements = self.unit_elements();
        self.units.as_mut_slice::<f32>().copy_within(from * elements..(from + 1) * elements, to * elements);
    }

    fn unit_elements(&self) -> usize {
        let (window, matrices) = self.layout.elements();
        window + matrices
    }

    fn unit(&self, bank: RecurrentBank) -> Result<usize, DeviceError> {
        if bank.bank < 2 && (bank.slot as usize) < self.slots {
            return Ok(2 * bank.slot as usize + usize::from(bank.bank));
        }
        let reason = format!("there are {} slots of two banks, bank {} was named", self.slots, bank.bank);
        Err(unknown("recurrent slot", bank.slot, reason))
    }
}
