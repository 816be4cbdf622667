//! All that sequences keep between steps: pages, recurrent slots, sampling histories, and the last steps.

mod pages;
mod slots;

pub(super) use pages::{Pages, Slot};
pub(super) use slots::{Kept, Part, Slots, Trail};

use super::values::Numbers;
use super::{unknown, unsupported};
use crate::sampling::History;
use crate::step::Steps;
use crate::{
    Budget, CaptureId, DeviceError, GroupId, PageId, Program, RecurrentBank, SamplerSlot, SnapshotId, State,
    StateBytes, StateEntry, StateId, StateLayout, StepId,
};
use std::any::Any;
use std::collections::HashMap;

/// State in float32 vectors; keys and values are rounded to the format of their layer when they are written.
#[derive(Debug)]
pub struct ReferenceState {
    layout: StateLayout,
    entries: Vec<Entry>,
    snapshots: Snapshots,
    pub(super) histories: Vec<History>,
    pub(super) steps: Steps<KeptRows>,
}

/// What one step keeps for later ones.
#[derive(Debug, Default)]
pub(super) struct KeptRows {
    pub(super) captures: HashMap<CaptureId, Numbers>,
    /// Of sequences whose drafts may fall.
    pub(super) recurrent: Vec<Kept>,
}

/// The state of one layer.
#[derive(Debug)]
enum Entry {
    Paged(Pages),
    Recurrent(Slots),
}

/// The names of the snapshots that exist.
#[derive(Debug)]
struct Snapshots {
    taken: Vec<bool>,
}

impl ReferenceState {
    pub(super) fn new(layout: &StateLayout, budget: &Budget) -> Result<Self, DeviceError> {
        let mut entries = Vec::new();
        for entry in &layout.entries {
            entries.push(match entry {
                StateEntry::Paged(paged) => {
                    let group = paged.group.0;
                    let pages = budget.pages.get(group as usize);
                    let missing = || unknown("page group", group, "the budget has no pages for it");
                    let open = paged.open.and_then(|open| budget.pages.get(open.0 as usize)).copied();
                    Entry::Paged(Pages::new(paged, *pages.ok_or_else(missing)?, open.unwrap_or(0))?)
                }
                StateEntry::Recurrent(recurrent) => {
                    Entry::Recurrent(Slots::new(recurrent, budget.recurrent_slots, budget.snapshots)?)
                }
            });
        }
        Ok(Self {
            layout: layout.clone(),
            entries,
            snapshots: Snapshots { taken: vec![false; budget.snapshots as usize] },
            histories: vec![History::default(); budget.sampler_slots as usize],
            steps: Steps::default(),
        })
    }

    /// The state as this backend made it, for the layout of a program.
    pub(super) fn ours<'a>(state: &'a mut dyn State, program: &Program) -> Result<&'a mut Self, DeviceError> {
        let ours = state.as_any_mut().downcast_mut::<Self>();
        let ours = ours.ok_or_else(|| unsupported("step", "the state was allocated by another backend"))?;
        if ours.layout == *program.state {
            return Ok(ours);
        }
        Err(unsupported("step", format!("the state has another layout than program `{}`", program.name)))
    }

    pub(super) fn pages(&mut self, id: StateId) -> &mut Pages {
        match &mut self.entries[id.0 as usize] {
            Entry::Paged(pages) => pages,
            Entry::Recurrent(_) => unreachable!("the verifier saw a paged entry here"),
        }
    }

    pub(super) fn slots(&mut self, id: StateId) -> &mut Slots {
        match &mut self.entries[id.0 as usize] {
            Entry::Recurrent(slots) => slots,
            Entry::Paged(_) => unreachable!("the verifier saw a recurrent entry here"),
        }
    }

    fn recurrent(&mut self) -> impl Iterator<Item = &mut Slots> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            Entry::Recurrent(slots) => Some(slots),
            Entry::Paged(_) => None,
        })
    }
}

impl State for ReferenceState {
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        for entry in &mut self.entries {
            match entry {
                Entry::Paged(pages) if pages.layout().group == group => pages.copy(copies)?,
                Entry::Paged(pages) if pages.layout().open == Some(group) => pages.copy_open(copies)?,
                Entry::Paged(_) | Entry::Recurrent(_) => {}
            }
        }
        Ok(())
    }

    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError> {
        let memory = self.steps.get_mut(step)?;
        memory.check_accepted(rows)?;
        for kept in std::mem::take(&mut memory.kept.recurrent) {
            let standing = rows[kept.sequence] as usize;
            self.slots(kept.state).settle(&kept, standing)?;
        }
        Ok(())
    }

    fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        let Some(free) = self.snapshots.taken.iter().position(|taken| !taken) else {
            let needed = self.layout.recurrent_bytes() as u64;
            return Err(DeviceError::OutOfMemory { what: "a snapshot beyond the budget".to_owned(), needed });
        };
        for slots in self.recurrent() {
            slots.snapshot(bank, free)?;
        }
        self.snapshots.taken[free] = true;
        Ok(SnapshotId(free as u32))
    }

    fn restore(&mut self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        let place = self.snapshots.find(snapshot)?;
        self.recurrent().try_for_each(|slots| slots.restore(place, bank))
    }

    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        let place = self.snapshots.find(snapshot)?;
        self.snapshots.taken[place] = false;
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
        let mut bytes = StateBytes::default();
        for entry in &self.entries {
            match entry {
                Entry::Paged(pages) => bytes.pages += float_bytes(pages.elements()),
                Entry::Recurrent(slots) => {
                    let [banks, snapshots] = slots.elements().map(float_bytes);
                    (bytes.slots, bytes.snapshots) = (bytes.slots + banks, bytes.snapshots + snapshots);
                }
            }
        }
        let candidates = self.steps.kept().flat_map(|kept| &kept.recurrent).map(|kept| kept.trail.elements());
        bytes.candidates = candidates.map(float_bytes).sum();
        bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Snapshots {
    fn find(&self, snapshot: SnapshotId) -> Result<usize, DeviceError> {
        let place = snapshot.0 as usize;
        if self.taken.get(place).copied().unwrap_or(false) {
            return Ok(place);
        }
        Err(unknown("snapshot", snapshot.0, "it was not taken, or was forgotten"))
    }
}

fn float_bytes(elements: usize) -> u64 {
    (elements * size_of::<f32>()) as u64
}

/// So many zeros, or the error that there is no room for them.
fn zeros(count: Option<usize>, what: &str) -> Result<Vec<f32>, DeviceError> {
    let needed = count.map_or(u64::MAX, |count| 4 * count as u64);
    let out_of_memory = || DeviceError::OutOfMemory { what: what.to_owned(), needed };
    let count = count.ok_or_else(out_of_memory)?;
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).map_err(|_| out_of_memory())?;
    zeros.resize(count, 0.0);
    Ok(zeros)
}
