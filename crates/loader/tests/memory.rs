//! Planned memory against what the process takes, after requests that have touched all of it.
//!
//! One test in a process of its own, since the process is what is measured. Needs the two test models, which
//! `cargo xtask models` gets.

use crossbeam_channel::unbounded;
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineOptions, Event, FinishReason, Request, Runner};
use gannet_loader::machine::Process;
use gannet_loader::{LoadOptions, Loaded, MemoryBroker, MemoryClass, MemoryUse, Running, load_within, start};
use gannet_ops::TokenId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How far apart they may be: so many bytes, or a twentieth of the plan where that is more.
const DIFFERENCE_MAX: u64 = 64 << 20;
const REQUESTS: u32 = 100;
const SEQUENCES: usize = 4;

fn own_bytes() -> u64 {
    Process::measure().expect("Linux tells what a process takes").own_bytes
}

/// Sends requests of various lengths, four at a time, and waits for all.
fn serve(runner: Runner) -> Running {
    let vocabulary = runner.vocabulary as u32;
    let options =
        EngineOptions { sequences: SEQUENCES, waiting: REQUESTS as usize, ..EngineOptions::default() };
    let running = start(runner, options).expect("a thread can be had");
    let mut all = Vec::new();
    for number in 0..REQUESTS {
        let length = if number < SEQUENCES as u32 { 250 } else { 3 + number % 5 };
        let prompt = (0..length).map(|n| TokenId((number * 7919 + n * 31 + 1) % vocabulary)).collect();
        let (sink, events) = unbounded();
        running.handle.submit(Request::greedy(prompt, 2, Arc::new(sink))).expect("the request is valid");
        all.push(events);
    }
    for events in all {
        let last = events.into_iter().last();
        assert!(
            matches!(last, Some(Event::Finished { reason: FinishReason::MaxTokens, .. })),
            "every request is answered: {last:?}"
        );
    }
    running
}

/// What is counted lies within its plan, and what requests touch is there.
fn check_classes(model: &str, planned: &MemoryUse, used: &MemoryUse) {
    for class in MemoryClass::ALL {
        let (planned, used) = (planned.of(class), used.of(class));
        // Weights are arranged for the processor, buffers of scores have room for more rows than are asked for, and the margin is
        // whatever is left.
        let is_exact = !matches!(class, MemoryClass::Weights | MemoryClass::Scratch | MemoryClass::Margin);
        assert!(!is_exact || used <= planned, "{model}: {used} bytes of {} for {planned}", class.name());
        let is_touched = matches!(class, MemoryClass::Pages | MemoryClass::Slots | MemoryClass::Scratch);
        assert!(!is_touched || planned == 0 || used > 0, "{model}: no {} lie in memory", class.name());
    }
    for class in [MemoryClass::Weights, MemoryClass::Scratch] {
        let [planned, used] = [planned, used].map(|memory| memory.of(class));
        let limit = DIFFERENCE_MAX.max(planned / 20);
        assert!(planned.abs_diff(used) <= limit, "{model}: {used} bytes of {} for {planned}", class.name());
    }
}

fn check(model: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(model);
    assert!(path.exists(), "{} is missing: `cargo xtask models` gets those of `models/`", path.display());
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let options = LoadOptions {
        context: Some(256),
        step_rows: Some(128),
        sequences: Some(SEQUENCES),
        ..LoadOptions::default()
    };
    let broker = MemoryBroker::new(8 << 30);
    let before = own_bytes();
    let Loaded { runner, memory, weight_bytes, grant, text, .. } =
        load_within(&broker, &path, &backend, &options, &|_| ()).expect("the model loads");
    let planned = memory.memory;
    assert_eq!(broker.total() - broker.free(), planned.total(), "what is planned is asked of the broker");
    let running = serve(runner);
    let measured = own_bytes().saturating_sub(before);
    let used = running.handle.measure(Duration::from_secs(60)).expect("the engine is idle");
    let used = MemoryUse::of_runner(weight_bytes, &used).with_rest_of(measured);
    println!("{model}: planned {planned}, {} in all; measured {used}, {measured} in all", planned.total());
    check_classes(model, &planned, &used);
    let limit = DIFFERENCE_MAX.max(planned.total() / 20);
    let difference = planned.total().abs_diff(measured);
    assert!(difference <= limit, "{model}: planned {planned}, measured {measured}: {difference} bytes apart");
    // Held until here, as a program that answers holds it.
    drop((running.handle, grant, text));
    running.thread.join().expect("the engine ends when its handle is dropped");
    assert_eq!(broker.free(), broker.total(), "what is no longer used is free");
}

#[test]
fn what_is_planned_is_what_is_taken() {
    // By size, since what one took and gave back is there for the next.
    check("goldens/qwen3-next");
    check("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    check("models/gemma-3-270m-q4_k_m.gguf");
}
