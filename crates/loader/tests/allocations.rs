//! A steady decode step takes no memory: neither the engine's loop nor the CPU backend calls the allocator.
//!
//! A process of its own, since the counting allocator counts all of it. Steady are the steps between two that begin a
//! page: one that does takes a page, and gives the one before to the prefix cache, which makes a node of it.

use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineOptions, Event, FinishReason, Request, RequestId, Sink};
use gannet_loader::{LoadOptions, Running, load, start};
use gannet_ops::{PAGE_TOKENS, TokenId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

/// The system's allocator, which counts what it is asked for.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `alloc` above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Steps that one answer is watched for.
const STEPS: usize = 3 * PAGE_TOKENS;

/// Writes down, at each message of a step, how many allocations there were before, in memory that is there already.
struct Watch {
    counts: Vec<AtomicU64>,
    /// Tokens of each request at that step.
    next: AtomicUsize,
    left: AtomicUsize,
    ended: Mutex<Option<SyncSender<()>>>,
}

impl Sink for Watch {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        let has_token = events.iter().any(|(_, event)| matches!(event, Event::Token { .. }));
        if has_token {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let now = ALLOCATIONS.load(Ordering::Relaxed);
            self.counts.get(place).iter().for_each(|count| count.store(now, Ordering::Relaxed));
        }
        for (_, event) in events.drain(..) {
            if let Event::Finished { reason, .. } = event {
                assert_eq!(reason, FinishReason::MaxTokens);
                if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    let ended = self.ended.lock().expect("nobody panics here").take();
                    ended.expect("the last one ends once").send(()).expect("the test waits");
                }
            }
        }
        Vec::new()
    }
}

/// The allocations of each step of `streams` greedy answers that run side by side, first to last.
fn allocations(model: &Path, streams: usize) -> Vec<u64> {
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let options = LoadOptions { context: Some(512), sequences: Some(streams), ..LoadOptions::default() };
    let loaded = load(model, &backend, &options, &|_| ()).expect("the golden loads");
    let vocabulary = loaded.runner.vocabulary as u32;
    // All prompts in one step, so that all answers fill their pages in the same ones.
    let step_rows = Some(streams * PAGE_TOKENS);
    let options = EngineOptions { sequences: streams, step_rows, ..EngineOptions::default() };
    let Running { handle, thread } = start(loaded.runner, options).expect("a thread can be had");
    let (sender, ended) = sync_channel(1);
    let watch = Arc::new(Watch {
        counts: (0..STEPS).map(|_| AtomicU64::new(0)).collect(),
        next: AtomicUsize::new(0),
        left: AtomicUsize::new(streams),
        ended: Mutex::new(Some(sender)),
    });
    for stream in 0..streams as u32 {
        let prompt =
            (0..PAGE_TOKENS as u32).map(|n| TokenId((stream * 7 + n * n + 3) % vocabulary)).collect();
        let request = Request::greedy(prompt, STEPS as u32, watch.clone());
        handle.submit(request).expect("the request is valid");
    }
    ended.recv().expect("the last answer ends");
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    let counts: Vec<u64> = watch.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    counts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn steps_between_pages_take_no_memory() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    for (model, streams) in
        [("llama", 1), ("llama", 8), ("llama-q8_0.gguf", 1), ("llama-q8_0.gguf", 8), ("gemma3", 8)]
    {
        let steps = allocations(&goldens.join(model), streams);
        // From the second page of the answer on everything has been as large as it gets. Between the message of a step
        // and that of the next, a page is filled, or one is begun where it was filled before.
        let is_steady = |step: &usize| *step >= PAGE_TOKENS && (step + 1) % PAGE_TOKENS > 1;
        let took = (0..steps.len() - 1).filter(is_steady).filter(|step| steps[*step] > 0);
        let took: Vec<(usize, u64)> = took.map(|step| (step, steps[step])).collect();
        assert!(took.is_empty(), "{model}, {streams} streams: (step, allocations) {took:?}");
        let at_edges = steps[PAGE_TOKENS..].iter().filter(|count| **count > 0).count();
        assert!(at_edges > 0, "what is counted is counted: pages take memory");
    }
}
