//! `gannet eval compare`: one backend against another, op by op over the same tokens.
//!
//! Both run the whole program; a value that both make is compared where it is made. The first op that differs is the
//! one to look at, as what follows it was given other inputs.

use super::check_ids;
use crate::arguments::DeviceArguments;
use crate::arguments::values::{self, TokenIds};
use crate::backend::BackendName;
use crate::failure::Failure;
use crate::model_reference::ModelReference;
use crate::output;
use crate::progress;
use clap::Args;
use gannet_loader::{LoadOptions, Loaded};
use gannet_ops::{
    Batch, Length, Node, Output, PAGE_TOKENS, PageId, PageTable, Program, Row, RowKind, SampleRows,
    SequenceRows, TokenId, TokenSource, ValueId, Want,
};
use std::collections::HashMap;
use std::path::Path;

/// Tokens that are compared where none are given.
const DEFAULT_TOKENS: usize = 16;
/// Most tokens that are compared, as every value of the reference is kept.
const MAX_TOKENS: usize = 1024;

const HELP: &str = "\
The difference of a value is the largest one of its numbers, relative to the largest number that it should hold. An op
beyond the tolerance is an error, and the first one is named.

Example: gannet eval compare model.gguf --backend cpu --against reference";

/// Compare two backends op by op
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct CompareArguments {
    /// A .gguf file, a folder with config.json and safetensors, or a name on the hub: ORG/REPO[:QUANT][@REVISION]
    #[arg(value_name = "MODEL")]
    reference: ModelReference,
    /// The backend that is tested
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    backend: BackendName,
    /// The backend that is right
    #[arg(long, value_enum, default_value_t = BackendName::Reference)]
    against: BackendName,
    /// Threads of the CPU backend [default: one a physical core that this process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
    /// The token ids to run, as 1,2,3 or @FILE [default: 16 from all over the vocabulary]
    #[arg(long, value_name = "LIST")]
    ids: Option<TokenIds>,
    /// Largest relative difference that is still equal
    #[arg(long, value_name = "X", default_value = "0.0001", value_parser = values::tolerance)]
    tolerance: f32,
}

/// An op's result beside what it should be.
#[derive(Debug, PartialEq)]
struct Comparison {
    node: usize,
    op: &'static str,
    weights: Vec<String>,
    /// Relative to the largest number of the value.
    difference: f32,
}

/// What every value of a program was, by its id.
type Values = HashMap<ValueId, Vec<f32>>;

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> Result<(), Failure> {
    if arguments.backend == arguments.against {
        return Err(Failure::usage(format!(
            "--backend and --against are both {}, expected two different backends",
            arguments.backend
        )));
    }
    let path = arguments.reference.locate()?;
    let ids = choose_ids(&path, arguments)?;
    let threads = |name: BackendName| arguments.threads.filter(|_| name == BackendName::Cpu);
    let mut expected = Values::new();
    trace(&path, arguments.against, threads(arguments.against), &ids, &mut |_, _, node, values| {
        expected.extend(node.outputs.iter().copied().zip(values.iter().map(|value| value.to_vec())));
    })?;
    let mut comparisons = Vec::new();
    trace(
        &path,
        arguments.backend,
        threads(arguments.backend),
        &ids,
        &mut |program, number, node, values| {
            comparisons.extend(compare(program, number, node, values, &expected));
        },
    )?;
    for comparison in &comparisons {
        output::show_line(&line(comparison, arguments.tolerance))?;
    }
    verdict(&comparisons, arguments)
}

/// The given ids, or some from all over the vocabulary.
fn choose_ids(path: &Path, arguments: &CompareArguments) -> Result<Vec<TokenId>, Failure> {
    let vocabulary = gannet_loader::open(path)?.model.config.vocabulary;
    let ids = match &arguments.ids {
        Some(ids) => ids.read()?,
        None => (1..=DEFAULT_TOKENS).map(|place| TokenId((place * 7919 % vocabulary) as u32)).collect(),
    };
    check_ids(&ids, vocabulary)?;
    if ids.len() > MAX_TOKENS {
        return Err(
            anyhow::anyhow!("{} token ids were given, at most {MAX_TOKENS} are compared", ids.len()).into()
        );
    }
    Ok(ids)
}

/// Is shown each node's place and values as they are made.
type Observer<'a> = dyn FnMut(&Program, usize, &Node, &[&[f32]]) + 'a;

/// Runs the ids as one step.
fn trace(
    path: &Path,
    backend: BackendName,
    threads: Option<usize>,
    ids: &[TokenId],
    observe: &mut Observer<'_>,
) -> Result<(), Failure> {
    let device = DeviceArguments { backend, threads, cpu_isa: None, cuda_launches: None, activations: None };
    let backend = device.exact().open()?;
    let options =
        LoadOptions { context: Some(ids.len()), step_rows: Some(ids.len()), ..LoadOptions::default() };
    let Loaded { program, mut runner, .. } = progress::load(path, backend.as_ref(), &options)?;
    let batch = batch(ids, runner.layout.groups.len());
    let state = runner.state.as_mut();
    let mut shown = |number: usize, node: &Node, values: &[&[f32]]| observe(&program, number, node, values);
    let step = runner.plan.submit_traced(&batch, state, &mut shown)?;
    runner.plan.sample(step, &SampleRows::default(), state)?;
    runner.plan.wait(step)?;
    Ok(())
}

/// One sequence from its start, with the scores of every row; all groups begin with their first page.
fn batch(ids: &[TokenId], groups: usize) -> Batch {
    let row = |(index, id): (u32, &TokenId)| Row {
        sequence: 0,
        token: TokenSource::Known(*id),
        index,
        position: [index; 3],
        kind: RowKind::Prompt,
    };
    let want = Want { logits: true, ..Want::default() };
    let rows: Vec<Row> = (0..).zip(ids).map(row).collect();
    let outputs = (0..rows.len() as u32).map(|row| Output { row, want }).collect();
    let pages = ids.len().div_ceil(PAGE_TOKENS) as u32;
    let table = PageTable { released: 0, pages: 0..pages };
    let sequence = SequenceRows {
        rows: 0..rows.len() as u32,
        length: Length::Exact(0),
        tables: vec![table; groups],
        recurrent: None,
        sampler: None,
        adapter: None,
    };
    let pages = (0..pages).map(PageId).collect();
    Batch { rows, sequences: vec![sequence], outputs, pages, ..Batch::default() }
}

/// Compares what a node made with what the other backend made; a value that the other one never made is left out.
fn compare(
    program: &Program,
    number: usize,
    node: &Node,
    values: &[&[f32]],
    expected: &Values,
) -> Option<Comparison> {
    let pairs = node.outputs.iter().zip(values).filter_map(|(id, found)| Some((found, expected.get(id)?)));
    let difference = pairs.map(|(found, expected)| relative_difference(found, expected)).reduce(f32::max)?;
    let weights = node.op.weights().iter().map(|id| program.weight(*id).name.clone()).collect();
    Some(Comparison { node: number, op: node.op.name(), weights, difference })
}

/// The largest difference of two numbers, relative to the largest number expected; infinite where it is none.
fn relative_difference(found: &[f32], expected: &[f32]) -> f32 {
    if found.len() != expected.len() {
        return f32::INFINITY;
    }
    let mut largest = 0.0f32;
    let mut scale = 0.0f32;
    for (found, expected) in found.iter().zip(expected) {
        // Equal infinities have no difference, though they can't be subtracted.
        let difference = if found == expected { 0.0 } else { (found - expected).abs() };
        largest = if difference.is_nan() { f32::INFINITY } else { largest.max(difference) };
        scale = scale.max(expected.abs());
    }
    if largest == 0.0 { 0.0 } else { largest / scale }
}

fn line(comparison: &Comparison, tolerance: f32) -> String {
    let Comparison { node, op, weights, difference } = comparison;
    let mark = if *difference > tolerance { "  differs" } else { "" };
    format!("{node:>5}  {op:<16}  {difference:>9.2e}{mark}  {}", weights.join(", ")).trim_end().to_owned()
}

fn verdict(comparisons: &[Comparison], arguments: &CompareArguments) -> Result<(), Failure> {
    let CompareArguments { backend, against, tolerance, .. } = arguments;
    let Some(first) = comparisons.iter().find(|comparison| comparison.difference > *tolerance) else {
        let largest = comparisons.iter().map(|comparison| comparison.difference).fold(0.0, f32::max);
        let count = comparisons.len();
        return output::show_line(&format!(
            "{backend} and {against} agree in {count} ops: the largest relative difference is {largest:.2e}, \
             within {tolerance:e}"
        ));
    };
    let Comparison { node, op, weights, difference } = first;
    let weights = if weights.is_empty() { String::new() } else { format!(" (`{}`)", weights.join("`, `")) };
    Err(anyhow::anyhow!(
        "{backend} differs from {against} first at node {node}, `{op}`{weights}: \
         by {difference:.2e} of the largest number, above the tolerance of {tolerance:e}"
    )
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_relative_to_the_largest_number_expected() {
        let check = |found: &[f32], expected: &[f32], difference: f32| {
            assert_eq!(relative_difference(found, expected), difference, "{found:?} {expected:?}");
        };
        check(&[1.0, 2.0], &[1.0, 2.0], 0.0);
        check(&[1.0, 3.0], &[1.0, 4.0], 0.25);
        check(&[0.0], &[0.0], 0.0);
        check(&[1.0], &[0.0], f32::INFINITY);
        check(&[f32::NEG_INFINITY], &[f32::NEG_INFINITY], 0.0);
        check(&[f32::NAN, 1.0], &[1.0, 1.0], f32::INFINITY);
        check(&[1.0], &[1.0, 1.0], f32::INFINITY);
    }
}
