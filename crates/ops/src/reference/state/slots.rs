//! Recurrent state of one layer: two banks a slot, snapshots, and what drafted rows leave behind.

use super::super::recurrent::Advance;
use super::super::unknown;
use super::zeros;
use crate::{DeviceError, RecurrentBank, RecurrentLayout, Rollback, StateId};

/// Which part of a layer's recurrent state.
#[derive(Clone, Copy, Debug)]
pub(in crate::reference) enum Part {
    /// `[kernel - 1, channels]`.
    Window,
    /// `[value_heads, key_dim, value_dim]`.
    Matrices,
}

/// Banks and snapshots of one layer.
#[derive(Debug)]
pub(in crate::reference) struct Slots {
    layout: RecurrentLayout,
    /// Two a slot.
    banks: Vec<Memory>,
    snapshots: Vec<Memory>,
}

#[derive(Clone, Debug)]
struct Memory {
    window: Vec<f32>,
    matrices: Vec<f32>,
}

/// What the drafted rows of one sequence leave behind in one part of one layer.
#[derive(Debug)]
pub(in crate::reference) struct Kept {
    pub(in crate::reference) state: StateId,
    pub(in crate::reference) part: Part,
    pub(in crate::reference) sequence: usize,
    pub(in crate::reference) bank: RecurrentBank,
    pub(in crate::reference) trail: Trail,
}

/// From where, and by what, the state after any of the rows is found.
#[derive(Debug)]
pub(in crate::reference) enum Trail {
    /// The state before the first row and after each.
    States(Vec<Vec<f32>>),
    /// The state before the first row, and what each row did to it.
    Inputs(Vec<f32>, Vec<Advance>),
}

impl Trail {
    pub(in crate::reference) fn new(rollback: Rollback, start: &[f32]) -> Self {
        match rollback {
            Rollback::Candidates => Trail::States(vec![start.to_vec()]),
            Rollback::Replay => Trail::Inputs(start.to_vec(), Vec::new()),
        }
    }

    pub(in crate::reference) fn push(&mut self, advance: Advance, state: &[f32]) {
        match self {
            Trail::States(states) => states.push(state.to_vec()),
            Trail::Inputs(_, advances) => advances.push(advance),
        }
    }

    /// Elements of the states in it.
    pub(in crate::reference) fn elements(&self) -> usize {
        match self {
            Trail::States(states) => states.iter().map(Vec::len).sum(),
            Trail::Inputs(start, advances) => {
                start.len() + advances.iter().map(Advance::elements).sum::<usize>()
            }
        }
    }

    /// The state after so many rows.
    fn after(&self, rows: usize) -> Vec<f32> {
        match self {
            Trail::States(states) => states[rows].clone(),
            Trail::Inputs(start, advances) => {
                let mut state = start.clone();
                advances[..rows].iter().for_each(|advance| advance.apply(&mut state));
                state
            }
        }
    }
}

impl Slots {
    pub(super) fn new(layout: &RecurrentLayout, slots: u32, snapshots: u32) -> Result<Self, DeviceError> {
        let (window, matrices) = layout.elements();
        let many = |count: u32| {
            let memory = || {
                let (window, matrices) =
                    (zeros(Some(window), "windows")?, zeros(Some(matrices), "matrices")?);
                Ok(Memory { window, matrices })
            };
            (0..count).map(|_| memory()).collect::<Result<Vec<_>, DeviceError>>()
        };
        Ok(Self {
            layout: layout.clone(),
            banks: many(slots.saturating_mul(2))?,
            snapshots: many(snapshots)?,
        })
    }

    pub(in crate::reference) fn layout(&self) -> &RecurrentLayout {
        &self.layout
    }

    /// A copy of one part of a bank; zeros where a sequence starts.
    pub(in crate::reference) fn read(
        &self,
        part: Part,
        bank: Option<RecurrentBank>,
    ) -> Result<Vec<f32>, DeviceError> {
        let (window, matrices) = self.layout.elements();
        match (bank, part) {
            (Some(bank), part) => Ok(self.banks[self.place(bank)?].part(part).to_vec()),
            (None, Part::Window) => Ok(vec![0.0; window]),
            (None, Part::Matrices) => Ok(vec![0.0; matrices]),
        }
    }

    pub(in crate::reference) fn write(
        &mut self,
        part: Part,
        bank: RecurrentBank,
        state: &[f32],
    ) -> Result<(), DeviceError> {
        let place = self.place(bank)?;
        self.banks[place].part_mut(part).copy_from_slice(state);
        Ok(())
    }

    /// Moves the state after so many rows into the bank that waits for it.
    pub(super) fn settle(&mut self, kept: &Kept, rows: usize) -> Result<(), DeviceError> {
        self.write(kept.part, kept.bank, &kept.trail.after(rows))
    }

    pub(super) fn snapshot(&mut self, bank: RecurrentBank, snapshot: usize) -> Result<(), DeviceError> {
        self.snapshots[snapshot] = self.banks[self.place(bank)?].clone();
        Ok(())
    }

    pub(super) fn restore(&mut self, snapshot: usize, bank: RecurrentBank) -> Result<(), DeviceError> {
        let place = self.place(bank)?;
        self.banks[place] = self.snapshots[snapshot].clone();
        Ok(())
    }

    /// Elements of the banks and of the snapshots.
    pub(super) fn elements(&self) -> [usize; 2] {
        let (window, matrices) = self.layout.elements();
        [self.banks.len(), self.snapshots.len()].map(|units| units * (window + matrices))
    }

    fn place(&self, bank: RecurrentBank) -> Result<usize, DeviceError> {
        let place = 2 * bank.slot as usize + usize::from(bank.bank);
        if bank.bank < 2 && place < self.banks.len() {
            return Ok(place);
        }
        let reason =
            format!("there are {} slots of two banks, bank {} was named", self.banks.len() / 2, bank.bank);
        Err(unknown("recurrent slot", bank.slot, reason))
    }
}

impl Memory {
    fn part(&self, part: Part) -> &[f32] {
        match part {
            Part::Window => &self.window,
            Part::Matrices => &self.matrices,
        }
    }

    fn part_mut(&mut self, part: Part) -> &mut [f32] {
        match part {
            Part::Window => &mut self.window,
            Part::Matrices => &mut self.matrices,
        }
    }
}
