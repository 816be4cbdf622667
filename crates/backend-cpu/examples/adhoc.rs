//! throwaway
use gannet_backend_cpu::{CpuBackend, CpuOptions, IsaLevel};
use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, TokenId};
use gannet_testing::sequence::Sequence;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let isa = match args.get(2).map(|s| s.as_str()) { Some("avx2") => Some(IsaLevel::Avx2), Some("scalar") => Some(IsaLevel::Scalar), _ => None };
    let threads = args.get(3).map(|s| s.parse().unwrap());
    let backend = CpuBackend::new(CpuOptions { threads, isa }).unwrap();
    let checkpoint = Checkpoint::open(std::path::Path::new(&args[1])).unwrap_or_else(|e| panic!("{e}"));
    let model = recognise(&checkpoint).unwrap_or_else(|e| panic!("{e}"));
    let program = model.program(&ProgramOptions { context: 1024, kv_format: KvFormat::F16 }).unwrap_or_else(|e| panic!("{e}"));
    let weights = model.weights(&checkpoint).unwrap_or_else(|e| panic!("{e}"));
    let t = Instant::now();
    let mut seq = Sequence::new(&backend, &program, &weights, 1024);
    println!("load {:?} threads {} isa {}", t.elapsed(), backend.threads(), backend.isa());
    let prompt: Vec<TokenId> = (0..512u32).map(|i| TokenId(i * 7 % 4000 + 10)).collect();
    let t = Instant::now();
    let mut next = seq.next_greedily(&prompt);
    println!("prefill 512: {:.1} tok/s", 512.0 / t.elapsed().as_secs_f64());
    let t = Instant::now();
    let mut out = vec![];
    for _ in 0..64 { next = seq.next_greedily(&[next]); out.push(next.0); }
    println!("decode: {:.1} tok/s  {:?}", 64.0 / t.elapsed().as_secs_f64(), &out[..8]);
}
