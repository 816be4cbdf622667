//! What sequences keep between steps: pages in the device's memory, sampling histories in the machine's and, where draws look back
//! at how often a token occurred, on the device too.
//!
//! A page of a group has the group's layers one after the other, each as keys `[kv_head][64][key_dim]`, then values
//! `[kv_head][64][value_dim]`; of codes in int8 each head is followed by its scales. A page of a group of open keys has the keys of
//! the group's layers in half precision, laid out alike. Recurrent state lies in units ([`crate::units`]).

use crate::backend::Device;
use crate::driver::{Address, DeviceBuffer};
use crate::error::{unknown, unsupported};
use crate::number::PageFormats;
use crate::units::{Candidate, LayerUnits, Units, Uses};
use gannet_ops::sampling::History;
use gannet_ops::step::Steps;
use gannet_ops::{
    Batch, Budget, DeviceError, GroupId, PageId, PagedLayout, Program, RecurrentBank, SamplerSlot,
    SnapshotId, State, StateBytes, StateEntry, StateId, StateLayout, StepId,
};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of all sequences of one engine.
pub(crate) struct CudaState {
    /// No other state of the device has it.
    pub(crate) number: u64,
    device: Arc<Device>,
    layout: StateLayout,
    groups: Vec<Pool>,
    /// For each entry of the layout, its place in pages; `None` for recurrent state.
    layers: Vec<Option<Layer>>,
    units: Units,
    memory: Arc<Mutex<Memory>>,
    /// For each sampler slot, what draws on the device look back at.
    counts: Vec<Option<Counts>>,
}

/// What steps leave for later ones on the host. A plan that draws on the device fills it in when it looks at what was drawn.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) histories: Vec<History>,
    pub(crate) steps: Steps<Vec<Candidate>>,
}

/// How often each token of a history occurs, on the device.
struct Counts {
    buffer: DeviceBuffer,
    /// Whether they are those of the history.
    are_current: bool,
}

/// The pages of a group, and one more for rows that are none.
struct Pool {
    pages: u32,
    page_bytes: usize,
    buffer: DeviceBuffer,
}

/// One layer's sizes, and where it begins in a page, in bytes.
struct Layer {
    layout: PagedLayout,
    formats: PageFormats,
    offset: usize,
    /// And in an open page, where keys have such.
    open_offset: usize,
}

/// A layer's part of the pages, as kernels take it.
pub(crate) struct LayerPages<'a> {
    pub(crate) layout: &'a PagedLayout,
    /// The layer's part of the first page.
    pub(crate) address: Address,
    pub(crate) page_bytes: u64,
    /// From the layer's keys to its values.
    pub(crate) value_offset: u64,
    /// The layer's part of the open pages, where keys have such.
    pub(crate) open: Option<OpenPages>,
}

/// A layer's part of the pages with keys in half precision, as kernels take it.
#[derive(Clone, Copy)]
pub(crate) struct OpenPages {
    pub(crate) group: GroupId,
    /// The layer's part of the first page.
    pub(crate) address: Address,
    pub(crate) page_bytes: u64,
    /// The number of the first page that is none of the group's: those from it on lie in the plan's scratch.
    pub(crate) scratch_from: u32,
}

impl<'a> LayerPages<'a> {
    /// As if the pages lay nowhere, to learn which kernels a layer needs.
    pub(crate) fn nowhere(layout: &'a PagedLayout) -> Self {
        let open = |group| OpenPages { group, address: Address::NONE, page_bytes: 0, scratch_from: 0 };
        let (address, open) = (Address::NONE, layout.open.map(open));
        Self { layout, address, page_bytes: 0, value_offset: 0, open }
    }
}

impl CudaState {
    pub(crate) fn new(
        device: &Arc<Device>,
        layout: &StateLayout,
        budget: &Budget,
    ) -> Result<Self, DeviceError> {
        let mut ends = vec![0; layout.groups.len()];
        let layers = layout.entries.iter().map(|entry| layer(entry, &mut ends)).collect::<Result<_, _>>()?;
        let pool = |(number, group): (usize, &gannet_ops::PageGroup)| {
            let pages = budget.pages.get(number).copied();
            let pages = pages
                .ok_or_else(|| unknown("page group", number as u64, "the budget has no pages for it"))?;
            let page_bytes = layout.page_bytes(GroupId(number as u32));
            let bytes = page_bytes.saturating_mul(pages as usize + 1);
            let buffer = DeviceBuffer::new(&device.driver, bytes).map_err(|error| {
                let what = format!("{pages} pages of group `{}` ({error})", group.name);
                DeviceError::OutOfMemory { what, needed: bytes as u64 }
            })?;
            Ok::<Pool, DeviceError>(Pool { pages, page_bytes, buffer })
        };
        Ok(Self {
            number: device.next_number(),
            device: Arc::clone(device),
            layout: layout.clone(),
            groups: layout.groups.iter().enumerate().map(pool).collect::<Result<_, _>>()?,
            layers,
            units: Units::new(device, layout, budget)?,
            memory: Arc::new(Mutex::new(Memory {
                histories: vec![History::default(); budget.sampler_slots as usize],
                steps: Steps::default(),
            })),
            counts: (0..budget.sampler_slots).map(|_| None).collect(),
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

    /// What steps leave for later ones.
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// The same, for who looks later.
    pub(crate) fn shared_memory(&self) -> Arc<Mutex<Memory>> {
        Arc::clone(&self.memory)
    }

    /// The counts of a slot's history on the device, and whether they are its own; memory for `bytes` where there is none yet.
    pub(crate) fn counts(&mut self, slot: SamplerSlot, bytes: usize) -> Result<(Address, bool), DeviceError> {
        let counts = &mut self.counts[slot.0 as usize];
        let buffer = match counts.take() {
            Some(known) if known.buffer.bytes() == bytes => known,
            Some(_) | None => {
                Counts { buffer: DeviceBuffer::new(&self.device.driver, bytes)?, are_current: false }
            }
        };
        let known = counts.insert(buffer);
        Ok((known.buffer.address(), std::mem::replace(&mut known.are_current, true)))
    }

    /// A slot's history goes on, or begins, without the device: its counts are no longer those of the history.
    pub(crate) fn forget_counts(&mut self, slot: SamplerSlot) {
        if let Some(Some(counts)) = self.counts.get_mut(slot.0 as usize) {
            counts.are_current = false;
        }
    }

    /// One layer's keys and values.
    pub(crate) fn layer(&self, state: StateId) -> LayerPages<'_> {
        let layer = self.layers[state.0 as usize].as_ref();
        let Layer { layout, formats, offset, open_offset } =
            layer.expect("the verifier saw a paged entry here");
        let pool = &self.groups[layout.group.0 as usize];
        let open = |group: GroupId| {
            let pool = &self.groups[group.0 as usize];
            OpenPages {
                group,
                address: pool.buffer.address().offset(*open_offset),
                page_bytes: pool.page_bytes as u64,
                scratch_from: self.scratch_from(group.0 as usize),
            }
        };
        LayerPages {
            layout,
            address: pool.buffer.address().offset(*offset),
            page_bytes: pool.page_bytes as u64,
            value_offset: (layout.kv_heads * formats.key_bytes(layout)) as u64,
            open: layout.open.map(open),
        }
    }

    /// One layer's windows and matrices.
    pub(crate) fn recurrent_layer(&self, state: StateId) -> LayerUnits<'_> {
        match &self.layout.entries[state.0 as usize] {
            StateEntry::Recurrent(layout) => self.units.layer(state, layout),
            StateEntry::Paged(_) => unreachable!("the verifier saw a recurrent entry here"),
        }
    }

    /// The units of recurrent state that the rows of a batch use; none where there is no such state.
    pub(crate) fn uses(&self, batch: &Batch) -> Result<Uses, DeviceError> {
        if !self.layout.is_recurrent() {
            return Ok(Uses::default());
        }
        let memory = self.memory();
        self.units.uses(batch, memory.steps.kept().flatten())
    }

    /// The page of a group that belongs to rows that are none.
    pub(crate) fn spare_page(&self, group: usize) -> u32 {
        self.groups[group].pages
    }

    /// The number of the first page that is none of a group's.
    pub(crate) fn scratch_from(&self, group: usize) -> u32 {
        self.groups[group].pages + 1
    }

    /// Checks that a page of a group exists.
    pub(crate) fn check_page(&self, group: usize, page: PageId) -> Result<(), DeviceError> {
        let pages = self.groups[group].pages;
        if page.0 < pages {
            return Ok(());
        }
        Err(unknown("page", page.0, format!("its group has {pages} pages")))
    }
}

fn layer(entry: &StateEntry, ends: &mut [usize]) -> Result<Option<Layer>, DeviceError> {
    let layout = match entry {
        StateEntry::Paged(layout) => layout,
        StateEntry::Recurrent(_) => return Ok(None),
    };
    let mut place = |group: GroupId, bytes: usize| {
        let end = ends.get_mut(group.0 as usize);
        let end = end.ok_or_else(|| unknown("page group", group.0, "the layout has fewer"))?;
        let offset = *end;
        *end += bytes;
        Ok::<_, DeviceError>(offset)
    };
    let offset = place(layout.group, layout.page_bytes())?;
    let open_offset = layout.open.map_or(Ok(0), |open| place(open, layout.open_page_bytes()))?;
    Ok(Some(Layer { layout: layout.clone(), formats: page_formats(layout)?, offset, open_offset }))
}

pub(crate) fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The formats of a layer's keys and values.
pub(crate) fn page_formats(layout: &PagedLayout) -> Result<PageFormats, DeviceError> {
    let [key, value] = [layout.key_format, layout.value_format].map(gannet_ops::KvFormat::name);
    let reason =
        || format!("keys in {key} beside values in {value} have no kernel; both in int8, or neither, have");
    PageFormats::of(layout).ok_or_else(|| unsupported("attention", reason()))
}

impl State for CudaState {
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        let groups = self.groups.len();
        let pool = self.groups.get(group.0 as usize);
        let pool = pool.ok_or_else(|| unknown("page group", group.0, format!("there are {groups}")))?;
        for (from, to) in copies {
            self.check_page(group.0 as usize, *from)?;
            self.check_page(group.0 as usize, *to)?;
            let place = |page: &PageId| pool.buffer.address().offset(page.0 as usize * pool.page_bytes);
            self.device.driver.copy(place(to), place(from), pool.page_bytes)?;
        }
        Ok(())
    }

    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError> {
        // Rows in pages stand or are written again; only recurrent state has to be chosen.
        let mut memory = self.memory();
        let step = memory.steps.get_mut(step)?;
        step.check_accepted(rows)?;
        std::mem::take(&mut step.kept).iter().try_for_each(|candidate| self.units.settle(candidate, rows))
    }

    fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        self.units.snapshot(bank)
    }

    fn restore(&mut self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        self.units.restore(snapshot, bank)
    }

    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        self.units.forget(snapshot)
    }

    fn start_history(&mut self, slot: SamplerSlot, history: History) -> Result<(), DeviceError> {
        self.forget_counts(slot);
        let histories = &mut self.memory().histories;
        let slots = histories.len();
        let place = histories.get_mut(slot.0 as usize);
        *place.ok_or_else(|| unknown("sampler slot", slot.0, format!("the state has {slots}")))? = history;
        Ok(())
    }

    fn bytes(&self) -> StateBytes {
        let pages = self.groups.iter().map(|pool| pool.buffer.bytes() as u64).sum();
        let counts = self.counts.iter().flatten().map(|counts| counts.buffer.bytes() as u64).sum();
        let mut bytes = StateBytes { pages, slots: counts, ..StateBytes::default() };
        self.units.add_bytes(&mut bytes);
        bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
