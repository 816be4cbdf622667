//! Two models on one account of memory: the second one gets the idle pages of the first.

use crossbeam_channel::unbounded;
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineHandle, EngineOptions, Event, Request};
use gannet_loader::{
    LoadError, LoadOptions, Loaded, MemoryBroker, MemoryPlan, Running, load_within, start_lending,
};
use gannet_ops::TokenId;
use std::path::Path;
use std::sync::Arc;

const SEQUENCES: usize = 8;

/// Loads a golden with room for so many sequences, or for as many as there is memory for, and starts it.
fn start_one(
    broker: &Arc<MemoryBroker>,
    backend: &CpuBackend,
    (name, sequences): (&str, usize),
) -> Result<(Running, MemoryPlan), LoadError> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(name);
    let options = LoadOptions { sequences: Some(sequences), fewer_sequences: true, ..LoadOptions::default() };
    let Loaded { runner, memory, grant, .. } = load_within(broker, &path, backend, &options, &|_| ())?;
    let options = EngineOptions { sequences: memory.sequences, ..EngineOptions::default() };
    Ok((start_lending(runner, options, grant)?, memory))
}

/// The tokens after as many prompts as run at once, all asked for together.
fn answers(handle: &EngineHandle) -> Vec<Vec<TokenId>> {
    let ask = |seed: u32| {
        let prompt = (0..150).map(|n| TokenId((seed * 31 + n * 7) % 200)).collect();
        let (sink, events) = unbounded();
        handle.submit(Request::greedy(prompt, 40, Arc::new(sink))).expect("the request is valid");
        events
    };
    let all: Vec<_> = (0..SEQUENCES as u32).map(ask).collect();
    let token = |event| match event {
        Event::Token { token, .. } => Some(token),
        Event::Started { .. } | Event::Prefilled { .. } | Event::Finished { .. } => None,
    };
    all.into_iter().map(|events| events.into_iter().filter_map(token).collect()).collect()
}

#[test]
fn a_second_model_gets_the_idle_memory_of_the_first() {
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let roomy = MemoryBroker::new(1 << 30);
    let (first, whole) = start_one(&roomy, &backend, ("llama", SEQUENCES)).expect("there is memory");
    assert_eq!((whole.sequences, whole.context), (SEQUENCES, 512));
    assert_eq!(roomy.total() - roomy.free(), whole.memory.total());
    let expected = answers(&first.handle);
    let pages = first.handle.stats().pages.total;
    end(first);
    let (second, one) = start_one(&roomy, &backend, ("qwen3", 1)).expect("there is memory");
    end(second);
    assert_eq!(roomy.free(), roomy.total(), "an engine that has ended holds nothing");

    // A byte less than the first as it wishes and the second for one sequence.
    let broker = MemoryBroker::new(whole.memory.total() + one.memory.total() - 1);
    let (first, _) = start_one(&broker, &backend, ("llama", SEQUENCES)).expect("there is memory");
    assert!(answers(&first.handle) == expected);
    let (second, shared) =
        start_one(&broker, &backend, ("qwen3", SEQUENCES)).expect("the first gives what lies idle");
    assert!(shared.sequences >= 1 && shared.context == 512, "{} of {}", shared.sequences, shared.context);
    assert!(first.handle.stats().pages.total < pages, "its idle pages are the second's");
    assert!(answers(&first.handle) == expected, "on less memory the answers are the same");
    end(second);
    assert!(answers(&first.handle) == expected);
    let now = first.handle.stats().pages.total;
    assert!(now > whole.context / 64 && now <= pages, "{now} of {pages} pages: it took some again");
    end(first);
    assert_eq!(broker.free(), broker.total());
}

fn end(Running { handle, thread }: Running) {
    drop(handle);
    thread.join().expect("an engine ends when its handle is dropped");
}
