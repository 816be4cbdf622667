//! Plan and state as the engine sees them: each call becomes work of the device, which does it when it comes to it.

use super::device::{Device, Work};
use gannet_ops::sampling::History;
use gannet_ops::{
    Batch, DeviceError, GroupId, Interrupter, OutputResult, PageId, Plan, PlanBytes, RecurrentBank,
    SampleRows, SamplerSlot, SnapshotId, State, StateBytes, StepId, StepOutput, Team, TokenId, TokenLogprobs,
};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) struct SimulatedState {
    pub(super) device: Arc<Mutex<Device>>,
}

pub(super) struct SimulatedPlan {
    pub(super) device: Arc<Mutex<Device>>,
    /// Runs the drafter, which has no recurrent state.
    pub(super) drafts: bool,
    /// Threads that it lends.
    pub(super) team: Option<Threads>,
}

/// A thread for each part.
pub(super) struct Threads;

impl Team for Threads {
    fn each(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| (0..parts).for_each(|part| drop(scope.spawn(move || work(part)))));
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().expect("a device that panicked fails its test")
}

impl Plan for SimulatedPlan {
    fn team(&self) -> Option<&dyn Team> {
        self.team.as_ref().map(|team| team as _)
    }

    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        let state = state.as_any_mut().downcast_mut::<SimulatedState>().expect("the state is simulated");
        assert!(Arc::ptr_eq(&self.device, &state.device), "a plan runs over its own device's state");
        let mut device = lock(&self.device);
        batch.check(&device.layout)?;
        let step = device.name_step();
        device.tell(Work::Step { step, batch: batch.clone(), drafts: self.drafts });
        Ok(step)
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, _state: &mut dyn State) -> Result<(), DeviceError> {
        lock(&self.device).tell(Work::Sample(step, rows.clone()));
        Ok(())
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        let result = |token: Option<TokenId>| OutputResult {
            token,
            logprobs: Some(TokenLogprobs::default()),
            not_finite: token.is_none(),
            ..OutputResult::default()
        };
        let drawn = lock(&self.device).wait(step);
        Ok(StepOutput { outputs: drawn.into_iter().map(result).collect(), accepted: Vec::new() })
    }

    fn interrupter(&self) -> Interrupter {
        Interrupter::default()
    }

    fn bytes(&self) -> PlanBytes {
        PlanBytes::default()
    }
}

impl State for SimulatedState {
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        lock(&self.device).tell(Work::Copy(group, copies.to_vec()));
        Ok(())
    }

    fn forget_pages(&mut self, group: GroupId, pages: &[PageId]) -> Result<(), DeviceError> {
        lock(&self.device).tell(Work::ForgetPages(group, pages.to_vec()));
        Ok(())
    }

    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError> {
        lock(&self.device).tell(Work::Accept(step, rows.to_vec()));
        Ok(())
    }

    fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        let mut device = lock(&self.device);
        assert!(device.taken.len() < device.snapshots_max, "snapshots stay within their budget");
        let id = device.name_snapshot();
        device.tell(Work::Snapshot(id, bank));
        Ok(id)
    }

    fn restore(&mut self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        lock(&self.device).tell(Work::Restore(snapshot, bank));
        Ok(())
    }

    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        let mut device = lock(&self.device);
        assert!(device.taken.remove(&snapshot), "a snapshot is forgotten once");
        device.tell(Work::Forget(snapshot));
        Ok(())
    }

    fn start_history(&mut self, _slot: SamplerSlot, _history: History) -> Result<(), DeviceError> {
        Ok(())
    }

    fn bytes(&self) -> StateBytes {
        lock(&self.device).bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
