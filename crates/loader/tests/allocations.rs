//! A steady decode step takes no memory: neither the engine's loop nor the CPU backend calls the allocator, nor where a page
//! begins and the one before goes to the prefix cache, nor where the cache gives up others for it.
//!
//! A process of its own, since the counting allocator counts all of it.

use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineOptions, Event, FinishReason, Request, RequestId, Sink};
use gannet_loader::{LoadOptions, Running, load, start};
use gannet_ops::{KvFormat, PAGE_TOKENS, TokenId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;

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
    /// Messages with tokens so far.
    next: AtomicUsize,
    streams: usize,
    /// The first message in which every stream has a token: requests come one by one, and some may come later.
    first_full: AtomicUsize,
    /// The first message in which a stream ends.
    first_end: AtomicUsize,
    left: AtomicUsize,
    /// Waits for the last one to end; to be woken takes no memory, as a channel would.
    waiter: Thread,
}

impl Sink for Watch {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        let tokens = events.iter().filter(|(_, event)| matches!(event, Event::Token { .. })).count();
        if tokens > 0 {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            let now = ALLOCATIONS.load(Ordering::Relaxed);
            self.counts.get(place).iter().for_each(|count| count.store(now, Ordering::Relaxed));
            if tokens == self.streams {
                self.first_full.fetch_min(place, Ordering::Relaxed);
            }
        }
        for (_, event) in events.drain(..) {
            if let Event::Finished { reason, .. } = event {
                assert_eq!(reason, FinishReason::MaxTokens);
                self.first_end.fetch_min(self.next.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
                if self.left.fetch_sub(1, Ordering::Release) == 1 {
                    self.waiter.unpark();
                }
            }
        }
        Vec::new()
    }
}

/// The allocations of each step in which all of `streams` greedy answers run side by side, first to last but the one that ends
/// an answer.
fn allocations(model: &Path, kv_format: KvFormat, streams: usize) -> Vec<u64> {
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let options = LoadOptions {
        context: Some(512),
        sequences: Some(streams),
        kv_format: Some(kv_format),
        ..LoadOptions::default()
    };
    let loaded = load(model, &backend, &options, &|_| ()).expect("the golden loads");
    let vocabulary = loaded.runner.vocabulary as u32;
    // All prompts in one step, so that all answers fill their pages in the same ones.
    let step_rows = Some(streams * PAGE_TOKENS);
    let options = EngineOptions { sequences: streams, step_rows, ..EngineOptions::default() };
    let Running { handle, thread } = start(loaded.runner, options).expect("a thread can be had");
    let prompt = |seed: u32| {
        let ids = (0..PAGE_TOKENS as u32).map(|n| TokenId((seed * 7 + n * n + 3) % vocabulary));
        ids.collect::<Vec<_>>()
    };
    // What others leave fills the cache, so that each page that begins is one that it gives up.
    let (sink, events) = crossbeam_channel::unbounded();
    for seed in 0..2 * streams as u32 {
        let request = Request::greedy(prompt(1000 + seed), STEPS as u32, Arc::new(sink.clone()));
        handle.submit(request).expect("the request is valid");
    }
    let ends = events.iter().filter(|event| matches!(event, Event::Finished { .. }));
    assert_eq!(ends.take(2 * streams).count(), 2 * streams);
    let watch = Arc::new(Watch {
        counts: (0..2 * STEPS).map(|_| AtomicU64::new(0)).collect(),
        next: AtomicUsize::new(0),
        streams,
        first_full: AtomicUsize::new(usize::MAX),
        first_end: AtomicUsize::new(usize::MAX),
        left: AtomicUsize::new(streams),
        waiter: std::thread::current(),
    });
    for stream in 0..streams as u32 {
        let request = Request::greedy(prompt(stream), STEPS as u32, watch.clone());
        handle.submit(request).expect("the request is valid");
    }
    while watch.left.load(Ordering::Acquire) > 0 {
        std::thread::park();
    }
    assert!(handle.stats().prefix.evicted_pages > 0, "the cache gave up pages");
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    let [first, end] = [&watch.first_full, &watch.first_end].map(|place| place.load(Ordering::Relaxed));
    assert!(
        first + 2 * PAGE_TOKENS < end,
        "all streams run side by side for two pages: from {first} to {end}"
    );
    let counts: Vec<u64> =
        watch.counts[first..end].iter().map(|count| count.load(Ordering::Relaxed)).collect();
    counts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn steady_steps_take_no_memory() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    let cases = [
        ("llama", KvFormat::F16, 1),
        ("llama", KvFormat::Int8, 8),
        ("llama-q8_0.gguf", KvFormat::F16, 1),
        ("llama-q8_0.gguf", KvFormat::F16, 8),
        ("gemma3", KvFormat::F16, 8),
        ("mistral", KvFormat::F16, 3),
        ("qwen3-moe", KvFormat::F16, 1),
        ("qwen3-moe", KvFormat::F16, 8),
        ("qwen3_5", KvFormat::F16, 1),
        ("qwen3_5", KvFormat::Int8, 8),
        ("qwen3_5-moe", KvFormat::F16, 8),
    ];
    for (model, kv_format, streams) in cases {
        let steps = allocations(&goldens.join(model), kv_format, streams);
        // From the second page of the last answer on everything has been as large as it gets.
        let took: Vec<(usize, u64)> = (PAGE_TOKENS..steps.len())
            .map(|step| (step, steps[step]))
            .filter(|(_, took)| *took > 0)
            .collect();
        assert!(took.is_empty(), "{model}, {kv_format:?}, {streams} streams: (step, allocations) {took:?}");
        assert!(ALLOCATIONS.load(Ordering::Relaxed) > 0, "what is counted is counted");
    }
}
