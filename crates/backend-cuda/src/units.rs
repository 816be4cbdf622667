//! Recurrent state of all layers in the device's memory: banks, snapshots, and the states that rows leave which may fall.
//!
//! A unit is one copy of a sequence's state: of each recurrent layer the convolution's window `[kernel - 1][channels]`, then the
//! delta rule's matrices in the order of their kernel, in float32. There are two units a slot, one a snapshot, and, for each
//! sequence of a step whose rows may fall, one a row. A step names the unit that a sequence's rows start from, and for each row
//! the unit that takes the state after it. So rows that fall cost nothing, and what stands is a copy.

use crate::backend::Device;
use crate::driver::{Address, DeviceBuffer};
use crate::error::unknown;
use gannet_ops::{
    Batch, Budget, DeviceError, RecurrentBank, RecurrentLayout, RecurrentUse, RecurrentWrite, SnapshotId,
    StateBytes, StateEntry, StateId, StateLayout,
};
use std::sync::Arc;

/// A unit that is none.
pub(crate) const NO_UNIT: u32 = u32::MAX;

/// All units.
pub(crate) struct Units {
    device: Arc<Device>,
    buffer: DeviceBuffer,
    unit_bytes: usize,
    /// For each entry of the layout, where it begins in a unit, in bytes.
    offsets: Vec<usize>,
    slots: u32,
    /// Whether each snapshot exists.
    snapshots: Vec<bool>,
    /// Places for the states of rows that may fall, each of a sequence in a step, and units of each.
    candidates: u32,
    candidate_rows: u32,
}

/// Units as the rows of a step use them.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Of each sequence: first row, rows, the unit that it starts from, nothing.
    pub(crate) runs: Vec<[u32; 4]>,
    /// Of each row: the unit that takes the state after it.
    pub(crate) after: Vec<u32>,
    pub(crate) candidates: Vec<Candidate>,
}

/// A sequence of a step whose rows may fall.
#[derive(Debug)]
pub(crate) struct Candidate {
    sequence: usize,
    /// Its place among all.
    place: u32,
    /// The unit with the state before its rows, and the one that waits for the state after those that stand.
    before: u32,
    into: u32,
}

/// A layer's part of the units, as kernels take it.
pub(crate) struct LayerUnits<'a> {
    pub(crate) layout: &'a RecurrentLayout,
    /// The layer's window in the first unit, and its matrices.
    pub(crate) windows: Address,
    pub(crate) matrices: Address,
    pub(crate) unit_elements: u64,
}

impl<'a> LayerUnits<'a> {
    /// As if the units lay nowhere, to learn which kernels a layer needs.
    pub(crate) fn nowhere(layout: &'a RecurrentLayout) -> Self {
        Self { layout, windows: Address::NONE, matrices: Address::NONE, unit_elements: 0 }
    }
}

impl Units {
    pub(crate) fn new(
        device: &Arc<Device>,
        layout: &StateLayout,
        budget: &Budget,
    ) -> Result<Self, DeviceError> {
        let Budget { recurrent_slots: slots, snapshots, candidates, candidate_rows, .. } = *budget;
        let unit_bytes = layout.recurrent_bytes();
        let waiting = u64::from(candidates) * u64::from(candidate_rows);
        let units = (2 * u64::from(slots) + u64::from(snapshots)).saturating_add(waiting);
        // One step names units by 32 bits.
        let units = u32::try_from(units).unwrap_or(u32::MAX) as usize;
        let bytes = unit_bytes.saturating_mul(units);
        let buffer = DeviceBuffer::new(&device.driver, bytes).map_err(|error| {
            let what = format!(
                "{slots} recurrent slots of two banks, {snapshots} snapshots and {waiting} states of drafted rows, each of {unit_bytes} bytes ({error})"
            );
            DeviceError::OutOfMemory { what, needed: bytes as u64 }
        })?;
        let mut end = 0;
        let offset = |entry: &StateEntry| {
            let start = end;
            if let StateEntry::Recurrent(layout) = entry {
                let (window, matrices) = layout.elements();
                end += (window + matrices) * size_of::<f32>();
            }
            start
        };
        Ok(Self {
            device: Arc::clone(device),
            buffer,
            unit_bytes,
            offsets: layout.entries.iter().map(offset).collect(),
            slots,
            snapshots: vec![false; snapshots as usize],
            candidates,
            candidate_rows,
        })
    }

    /// Adds what is in memory.
    pub(crate) fn add_bytes(&self, bytes: &mut StateBytes) {
        let of = |units: u64| units * self.unit_bytes as u64;
        bytes.slots += of(2 * u64::from(self.slots));
        bytes.snapshots += of(self.snapshots.len() as u64);
        bytes.candidates += of(u64::from(self.candidates) * u64::from(self.candidate_rows));
    }

    /// One layer's windows and matrices.
    pub(crate) fn layer<'a>(&self, state: StateId, layout: &'a RecurrentLayout) -> LayerUnits<'a> {
        let windows = self.buffer.address().offset(self.offsets[state.0 as usize]);
        let matrices = windows.offset(layout.elements().0 * size_of::<f32>());
        LayerUnits { layout, windows, matrices, unit_elements: (self.unit_bytes / size_of::<f32>()) as u64 }
    }

    /// Which units the rows of a batch use, where `waiting` are in use by steps before.
    pub(crate) fn uses<'a>(
        &self,
        batch: &Batch,
        waiting: impl Iterator<Item = &'a Candidate>,
    ) -> Result<Uses, DeviceError> {
        let mut is_free = vec![true; self.candidates as usize];
        waiting.for_each(|candidate| is_free[candidate.place as usize] = false);
        let mut uses = Uses { after: vec![NO_UNIT; batch.rows.len()], ..Uses::default() };
        for (sequence, part) in batch.sequences.iter().enumerate() {
            let RecurrentUse { read, write } =
                part.recurrent.expect("the batch was checked against the layout");
            let before = read.map_or(Ok(NO_UNIT), |bank| self.bank(bank))?;
            let (first, rows) = (part.rows.start, part.rows.len() as u32);
            uses.runs.push([first, rows, before, 0]);
            match write {
                RecurrentWrite::Bank(bank) => {
                    let unit = self.bank(bank)?;
                    if unit == before {
                        let reason = "a step reads one of a slot's banks and writes the other";
                        return Err(unknown("recurrent slot", bank.slot, reason));
                    }
                    uses.after[part.rows.end as usize - 1] = unit;
                }
                RecurrentWrite::Candidates(bank) => {
                    let into = self.bank(bank)?;
                    let place = self.candidate(&mut is_free, rows)?;
                    let after = &mut uses.after[first as usize..part.rows.end as usize];
                    after.iter_mut().zip(0..).for_each(|(unit, row)| *unit = self.candidate_unit(place, row));
                    uses.candidates.push(Candidate { sequence, place, before, into });
                }
            }
        }
        Ok(uses)
    }

    fn candidate(&self, is_free: &mut [bool], rows: u32) -> Result<u32, DeviceError> {
        if rows > self.candidate_rows {
            let most = self.candidate_rows;
            let reason =
                format!("there is memory for the states after {most} rows of a sequence that may fall");
            return Err(unknown("row of a sequence", rows - 1, reason));
        }
        let Some(place) = is_free.iter().position(|free| *free) else {
            let what = format!(
                "states of drafted rows: {} sequences of steps before wait to be confirmed, as many as there is memory for",
                self.candidates
            );
            let needed = u64::from(rows) * self.unit_bytes as u64;
            return Err(DeviceError::OutOfMemory { what, needed });
        };
        is_free[place] = false;
        Ok(place as u32)
    }

    /// Moves the state after the rows that stand of a sequence into the bank that waits for it.
    pub(crate) fn settle(&self, candidate: &Candidate, standing: &[u32]) -> Result<(), DeviceError> {
        let from = match standing[candidate.sequence] {
            0 => candidate.before,
            rows => self.candidate_unit(candidate.place, rows - 1),
        };
        if from == NO_UNIT {
            let into = self.address(candidate.into);
            return Ok(self.device.driver.clear(into, self.unit_bytes)?);
        }
        self.copy(from, candidate.into)
    }

    pub(crate) fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        let from = self.bank(bank)?;
        let Some(free) = self.snapshots.iter().position(|taken| !taken) else {
            let what = format!("a snapshot beyond the budget of {}", self.snapshots.len());
            return Err(DeviceError::OutOfMemory { what, needed: self.unit_bytes as u64 });
        };
        self.copy(from, self.snapshot_unit(free))?;
        self.snapshots[free] = true;
        Ok(SnapshotId(free as u32))
    }

    pub(crate) fn restore(&self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        let place = self.taken(snapshot)?;
        self.copy(self.snapshot_unit(place), self.bank(bank)?)
    }

    pub(crate) fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        let place = self.taken(snapshot)?;
        self.snapshots[place] = false;
        Ok(())
    }

    fn taken(&self, snapshot: SnapshotId) -> Result<usize, DeviceError> {
        let place = snapshot.0 as usize;
        if self.snapshots.get(place).copied().unwrap_or(false) {
            return Ok(place);
        }
        Err(unknown("snapshot", snapshot.0, "it was not taken, or was forgotten"))
    }

    fn copy(&self, from: u32, to: u32) -> Result<(), DeviceError> {
        Ok(self.device.driver.copy(self.address(to), self.address(from), self.unit_bytes)?)
    }

    fn address(&self, unit: u32) -> Address {
        self.buffer.address().offset(unit as usize * self.unit_bytes)
    }

    fn bank(&self, bank: RecurrentBank) -> Result<u32, DeviceError> {
        if bank.bank < 2 && bank.slot < self.slots {
            return Ok(2 * bank.slot + u32::from(bank.bank));
        }
        let reason = format!("there are {} slots of two banks, bank {} was named", self.slots, bank.bank);
        Err(unknown("recurrent slot", bank.slot, reason))
    }

    fn snapshot_unit(&self, snapshot: usize) -> u32 {
        2 * self.slots + snapshot as u32
    }

    fn candidate_unit(&self, place: u32, row: u32) -> u32 {
        self.snapshot_unit(self.snapshots.len()) + place * self.candidate_rows + row
    }
}
