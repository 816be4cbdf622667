//! All that sequences keep between steps: pages, recurrent slots, sampling histories, and the last steps.

mod pools;
mod slots;

pub(crate) use pools::Pools;
pub(crate) use slots::{Draft, DraftInputs, Slots};

use crate::backend::{Machine, unknown, unsupported};
use gannet_ops::sampling::History;
use gannet_ops::step::Steps;
use gannet_ops::{
    Budget, CaptureId, DeviceError, GroupId, PageId, Program, RecurrentBank, SamplerSlot, SnapshotId, State,
    StateBytes, StateEntry, StateLayout, StepId,
};
use std::any::Any;
use std::sync::Arc;

/// The state of all sequences of one engine.
pub(crate) struct CpuState {
    machine: Arc<Machine>,
    layout: StateLayout,
    pub(crate) pools: Pools,
    /// For each entry of the layout, its recurrent state; `None` for one in pages.
    slots: Vec<Option<Slots>>,
    /// Whether each snapshot exists.
    snapshots: Vec<bool>,
    pub(crate) histories: Vec<History>,
    pub(crate) steps: Steps<Kept>,
}

/// What a step leaves for later ones.
#[derive(Default)]
pub(crate) struct Kept {
    captures: Vec<(CaptureId, Captured)>,
    pub(crate) drafts: Vec<Draft>,
}

/// A value that a step kept: `[rows, width]`.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) width: usize,
    pub(crate) data: Vec<f32>,
}

impl Kept {
    /// Keeps a copy of a value.
    pub(crate) fn capture(&mut self, id: CaptureId, width: usize, data: &[f32]) {
        self.captures.push((id, Captured { width, data: data.to_vec() }));
    }
}

impl CpuState {
    pub(crate) fn new(
        machine: &Arc<Machine>,
        layout: &StateLayout,
        budget: &Budget,
    ) -> Result<Self, DeviceError> {
        let slots = |entry: &StateEntry| match entry {
            StateEntry::Paged(_) => Ok(None),
            StateEntry::Recurrent(layout) => {
                Slots::new(layout, budget.recurrent_slots, budget.snapshots).map(Some)
            }
        };
        Ok(Self {
            machine: Arc::clone(machine),
            layout: layout.clone(),
            pools: Pools::new(layout, budget)?,
            slots: layout.entries.iter().map(slots).collect::<Result<_, _>>()?,
            snapshots: vec![false; budget.snapshots as usize],
            histories: vec![History::default(); budget.sampler_slots as usize],
            steps: Steps::default(),
        })
    }

    /// The state as this backend made it, for the layout of a program.
    pub(crate) fn ours<'a>(state: &'a mut dyn State, program: &Program) -> Result<&'a mut Self, DeviceError> {
        let ours = state.as_any_mut().downcast_mut::<Self>();
        let ours = ours.ok_or_else(|| unsupported("step", "the state was allocated by another backend"))?;
        if ours.layout == *program.state {
            return Ok(ours);
        }
        Err(unsupported("step", format!("the state has another layout than program `{}`", program.name)))
    }

    /// The recurrent state of an entry.
    pub(crate) fn slots(&self, entry: usize) -> &Slots {
        self.slots[entry].as_ref().expect("the verifier saw a recurrent entry here")
    }

    /// The same, to be written.
    pub(crate) fn slots_mut(&mut self, entry: usize) -> &mut Slots {
        self.slots[entry].as_mut().expect("the verifier saw a recurrent entry here")
    }

    /// What a step captured.
    pub(crate) fn captured(&self, step: StepId, id: CaptureId) -> Result<&Captured, DeviceError> {
        let captures = &self.steps.get(step)?.kept.captures;
        let found = captures.iter().find(|(found, _)| *found == id).map(|(_, captured)| captured);
        found.ok_or_else(|| unknown("capture", id.0, format!("step {} kept none", step.0)))
    }

    fn snapshot_place(&self, snapshot: SnapshotId) -> Result<usize, DeviceError> {
        let place = snapshot.0 as usize;
        if self.snapshots.get(place).copied().unwrap_or(false) {
            return Ok(place);
        }
        Err(unknown("snapshot", snapshot.0, "it was not taken, or was forgotten"))
    }
}

impl State for CpuState {
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        self.pools.copy(group, copies)
    }

    fn forget_pages(&mut self, group: GroupId, pages: &[PageId]) -> Result<(), DeviceError> {
        self.pools.forget(group, pages)
    }

    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError> {
        let memory = self.steps.get_mut(step)?;
        memory.check_accepted(rows)?;
        for draft in std::mem::take(&mut memory.kept.drafts) {
            let standing = rows[draft.sequence] as usize;
            let slots = self.slots[draft.entry].as_mut().expect("a draft is of a recurrent entry");
            self.machine.with_crew(|crew| slots.settle(crew, &draft, standing))?;
        }
        Ok(())
    }

    fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        let Some(free) = self.snapshots.iter().position(|taken| !taken) else {
            let needed = self.layout.recurrent_bytes() as u64;
            return Err(DeviceError::OutOfMemory { what: "a snapshot beyond the budget".to_owned(), needed });
        };
        self.slots.iter_mut().flatten().try_for_each(|slots| slots.snapshot(bank, free))?;
        self.snapshots[free] = true;
        Ok(SnapshotId(free as u32))
    }

    fn restore(&mut self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        let place = self.snapshot_place(snapshot)?;
        self.slots.iter_mut().flatten().try_for_each(|slots| slots.restore(place, bank))
    }

    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        let place = self.snapshot_place(snapshot)?;
        self.snapshots[place] = false;
        Ok(())
    }

    fn start_history(&mut self, slot: SamplerSlot, history: History) -> Result<(), DeviceError> {
        let slots = self.histories.len();
        let place = self.histories.get_mut(slot.0 as usize);
        let place = place.ok_or_else(|| unknown("sampler slot", slot.0, format!("the state has {slots}")))?;
        *place = history;
        Ok(())
    }

    fn bytes(&self) -> StateBytes {
        let drafts = self.steps.kept().flat_map(|kept| &kept.drafts);
        let candidates = drafts.map(Draft::bytes).sum();
        let mut bytes = StateBytes { pages: self.pools.bytes(), candidates, ..StateBytes::default() };
        for (banks, snapshots) in self.slots.iter().flatten().map(Slots::bytes) {
            (bytes.slots, bytes.snapshots) = (bytes.slots + banks, bytes.snapshots + snapshots);
        }
        bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
