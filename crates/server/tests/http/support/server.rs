//! A server with a toy model, on a port of its own.

use super::client::{Answer, Connection};
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineOptions, PrefixFollower, RunnerBytes};
use gannet_loader::{LoadOptions, Loaded, MemoryClass, Purpose, Running, load, start};
use gannet_ops::{
    Batch, DeviceError, Interrupter, Plan, PlanBytes, PoolKind, SampleRows, State, StepId, StepOutput,
    TokenId,
};
use gannet_server::{
    Bound, Config, Facts, Keys, Limits, LoadFailure, Measure, Model, ModelEntry, ModelSource, Origins,
};
use gannet_testing::toy::{self, write_toy};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};

/// Sequences of each model.
const SEQUENCES: usize = 4;

/// A running server, which stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _folder: TempDir,
}

/// What a test may change.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    pub(crate) sequences: usize,
    pub(crate) names: Vec<&'static str>,
    /// Another chat template than the toy's.
    pub(crate) template: Option<&'static str>,
    /// Another context than the toy's.
    pub(crate) context: Option<usize>,
    /// Models that memory has room for at once.
    pub(crate) room: usize,
    /// While a test holds it, engines come to stand.
    pub(crate) hold: Arc<Mutex<()>>,
    /// While it is set, the device fails; engines run on the backend's own plan where there is none.
    pub(crate) fails: Option<Arc<AtomicBool>>,
}

/// A plan whose device may be lost.
struct Losable {
    plan: Box<dyn Plan>,
    is_lost: Arc<AtomicBool>,
}

impl Plan for Losable {
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(DeviceError::Failed { backend: "test", reason: "the device is lost".to_owned() });
        }
        self.plan.submit(batch, state)
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        self.plan.sample(step, rows, state)
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.plan.wait(step)
    }

    fn interrupter(&self) -> Interrupter {
        self.plan.interrupter()
    }

    fn bytes(&self) -> PlanBytes {
        self.plan.bytes()
    }
}

struct ToySource {
    path: PathBuf,
    sequences: usize,
    waiting: usize,
    context: Option<usize>,
    purpose: Purpose,
    room: Arc<Semaphore>,
    hold: Arc<Mutex<()>>,
    fails: Option<Arc<AtomicBool>>,
}

impl ModelSource for ToySource {
    fn load(&self, follower: Option<PrefixFollower>) -> Result<Model, LoadFailure> {
        let full = |_| LoadFailure::NoRoom("the test has room for no more".to_owned());
        let place = self.room.clone().try_acquire_owned().map_err(full)?;
        let broken = |error: &dyn std::fmt::Display| LoadFailure::Broken(error.to_string());
        let backend = CpuBackend::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap();
        let (sequences, purpose) = (Some(self.sequences), self.purpose);
        let context = self.context;
        let options =
            LoadOptions { sequences, purpose, context, force_context: true, ..LoadOptions::default() };
        let Loaded { text, mut runner, memory, weight_bytes, .. } =
            load(&self.path, &backend, &options, &|_| ()).map_err(|error| broken(&error))?;
        runner.prefix_follower = follower;
        if let Some(is_lost) = self.fails.clone() {
            runner.plan = Box::new(Losable { plan: runner.plan, is_lost });
        }
        let hold = self.hold.clone();
        // An engine looks at this from time to time, and drops it at its end.
        runner.major_faults = Box::new(move || {
            let _place = &place;
            drop(hold.lock());
            None
        });
        let numerics_id = runner.numerics_id.to_string();
        let waiting = self.sequences + self.waiting;
        let options = EngineOptions { sequences: self.sequences, waiting, ..EngineOptions::default() };
        let Running { handle, thread } = start(runner, options).unwrap();
        let measured = handle.clone();
        let used_memory = Measure(Arc::new(move || {
            let used = |bytes: RunnerBytes| vec![("weights", weight_bytes), ("pages", bytes.state.pages)];
            measured.measure(Duration::from_secs(10)).map(used).unwrap_or_default()
        }));
        let memory = vec![("weights", memory.memory.of(MemoryClass::Weights))];
        let facts = Facts { numerics_id, memory, used_memory };
        let end_tokens = [toy::END_OF_TEXT, toy::TURN_ENDS].map(TokenId).to_vec();
        Ok(Model {
            handle,
            thread,
            text: text.unwrap(),
            end_tokens,
            sequences: self.sequences,
            resumes_at_messages: false,
            facts,
        })
    }
}

/// What a server is told where a test says nothing.
pub(crate) fn config() -> Config {
    Config {
        address: ([127, 0, 0, 1], 0).into(),
        keys: Keys::default(),
        cors_origins: Origins::default(),
        tls: None,
        limits: Arc::default(),
        loaded_models: 8,
        seed: Some(1),
        logs_text: false,
        #[cfg(feature = "kv-events")]
        kv_events: None,
    }
}

impl Server {
    /// A server of one model, `toy`, that everybody may ask.
    pub(crate) fn start() -> Self {
        Self::with(|_| ())
    }

    /// A server with changes.
    pub(crate) fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup {
            config: config(),
            limits: Limits::default(),
            sequences: SEQUENCES,
            names: vec!["toy"],
            template: None,
            context: None,
            room: 8,
            hold: Arc::default(),
            fails: None,
        };
        change(&mut setup);
        let folder = TempDir::new().unwrap();
        let template = setup.template.map(|template| ("tokenizer.chat_template", template.into()));
        let changes: Vec<_> = template.into_iter().collect();
        let path = PathBuf::from(write_toy(&folder.path().join("toy.gguf"), &changes));
        let (sequences, waiting) = (setup.sequences, setup.limits.waiting);
        let room = Arc::new(Semaphore::new(setup.room));
        let entry = |name: &&str| ModelEntry {
            name: (*name).to_owned(),
            source: Arc::new(ToySource {
                path: if *name == "broken" { folder.path().join("absent") } else { path.clone() },
                sequences,
                waiting,
                context: setup.context,
                purpose: match *name {
                    "vectors" => Purpose::Vectors { pooling: Some(PoolKind::Mean) },
                    "first" => Purpose::Vectors { pooling: Some(PoolKind::First) },
                    "last" => Purpose::Vectors { pooling: Some(PoolKind::Last) },
                    _ => Purpose::Text,
                },
                room: room.clone(),
                hold: setup.hold.clone(),
                fails: setup.fails.clone(),
            }),
        };
        let models = setup.names.iter().map(entry).collect();
        setup.config.limits = Arc::new(setup.limits);
        let (stop, stopped) = oneshot::channel();
        let (tell, address) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let bound = Bound::bind(setup.config, models).await.unwrap();
                tell.send(bound.address()).unwrap();
                bound.run(async { drop(stopped.await) }).await;
            });
            runtime.shutdown_background();
        });
        let address = address.recv().unwrap();
        Self { address, stop: Some(stop), thread: Some(thread), _folder: folder }
    }

    /// Asks the server to stop, as a signal does.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has stopped.
    pub(crate) fn join(mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Posts a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.connect().post(path, body.to_string().as_bytes())
    }

    /// A number of `/metrics`, by the beginning of its line; none before its model is loaded.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").body;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Waits until a number of `/metrics` is this one.
    pub(crate) fn wait_for(&self, name: &str, value: f64) {
        let is_there = (0..100_000).any(|_| self.metric(name) == Some(value));
        assert!(is_there, "{name} is {:?}, never {value}", self.metric(name));
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    /// Posts a body that is answered with 200, and gives the answer.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Posts a body that is refused, and checks status and field; then the server must still serve.
    pub(crate) fn refuses(&self, path: &str, body: &Value, status: u16, param: &str) -> String {
        let answer = self.post(path, body);
        let message = answer.is_error(status, Some(param));
        assert_eq!(self.get("/v1/models").status, 200);
        message
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(thread::panicking() || result.is_ok(), "the server's thread panicked");
        }
    }
}
