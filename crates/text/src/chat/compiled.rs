//! A template as the engine's instructions, with a check wherever a value could become too large.
//!
//! The engine's fuel pays for what it copies, but its lists share their parts: `[x, x]` thirty times over is small until
//! something walks it, and that walk is outside of the fuel. So the instructions are written anew. Behind each that makes
//! a value stands one that weighs it (see `weight`); those that repeat or join values, and filters and tests, go through
//! functions which weigh what they are given first. Then no value that exists is heavier than the limit, and no work on
//! one is unpaid.
//!
//! Knows no message and no weight.

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, eval, make_string_output, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

/// Weighs the value on the stack, and makes a list of what only promises to be one.
pub(super) const WEIGH: &str = "weigh";
/// Weighs the value on the stack, which must be, or hold, no namespace: one in itself would have no end.
pub(super) const WEIGH_ASSIGNED: &str = "weigh_assigned";
/// Pays for a walk through the value on the stack.
pub(super) const PAY: &str = "pay";
/// `+`, `~` and `*`.
pub(super) const ADD: &str = "add";
pub(super) const JOIN: &str = "join_texts";
pub(super) const REPEAT: &str = "repeat";
/// Calls the filter, or performs the test, whose name is the last argument.
pub(super) const FILTER: &str = "filter";
pub(super) const TEST: &str = "weighed";

/// The engine's number of a filter that it looks up at each call.
const NOT_KEPT: u8 = !0;
/// What errors call the template.
const NAME: &str = "chat template";

/// A template's instructions.
pub(super) struct Compiled<'source> {
    instructions: Instructions<'source>,
    blocks: BTreeMap<&'source str, Instructions<'source>>,
}

impl<'source> Compiled<'source> {
    pub(super) fn new(source: &'source str, syntax: SyntaxConfig) -> Result<Self, Error> {
        let template = parse(source, NAME, syntax)?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&template);
        let (instructions, blocks) = generator.finish();
        let blocks = blocks.into_iter().map(|(name, block)| Ok((name, checked(&block)?)));
        Ok(Self { instructions: checked(&instructions)?, blocks: blocks.collect::<Result<_, Error>>()? })
    }

    pub(super) fn render(
        &'source self,
        environment: &'source Environment<'source>,
        context: Value,
    ) -> Result<String, Error> {
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        eval(environment, &self.instructions, context, &self.blocks, &mut output, AutoEscape::None)?;
        Ok(text)
    }
}

fn checked<'source>(original: &Instructions<'source>) -> Result<Instructions<'source>, Error> {
    let mut written = Instructions::new(original.name(), original.source());
    // Where each of the original's instructions begins.
    let mut places = Vec::new();
    while let Some(instruction) = original.get(places.len() as u32) {
        let number = places.len() as u32;
        let line = original.get_line(number).and_then(|line| u16::try_from(line).ok()).unwrap_or(u16::MAX);
        let mut place = None;
        for instruction in replacement(instruction)? {
            let written = match original.get_span(number) {
                Some(span) => written.add_with_span(instruction, span),
                None => written.add_with_line(instruction, line),
            };
            place.get_or_insert(written);
        }
        places.push(place.expect("each instruction is replaced by some"));
    }
    let mut number = 0;
    while let Some(instruction) = written.get_mut(number) {
        number += 1;
        if let Some(target) = target(instruction) {
            // A jump may lead behind the last instruction.
            *target = places.get(*target as usize).copied().unwrap_or(u32::MAX - 1);
        }
    }
    Ok(written)
}

/// What stands for an instruction.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's release is pinned, and what is not named here makes nothing larger than what it was given"
)]
fn replacement<'source>(instruction: &Instruction<'source>) -> Result<Vec<Instruction<'source>>, Error> {
    use Instruction as I;
    let call = |name| I::ApplyFilter(name, Some(1), NOT_KEPT);
    let same = instruction.clone();
    Ok(match instruction {
        // The formatter counts what is printed.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::StringConcat => vec![I::ApplyFilter(JOIN, Some(2), NOT_KEPT)],
        I::Add => vec![I::ApplyFilter(ADD, Some(2), NOT_KEPT)],
        I::Mul => vec![I::ApplyFilter(REPEAT, Some(2), NOT_KEPT)],
        I::Slice
        | I::BuildMap(_)
        | I::BuildList(_)
        | I::BuildTuple(_)
        | I::CallFunction(..)
        | I::CallObject(_) => vec![same, call(WEIGH)],
        I::CallMethod("changed", count) => {
            // A loop compares it with what it was given the last time.
            if *count != Some(2) {
                return Err(Error::new(ErrorKind::SyntaxError, "changed() takes one argument"));
            }
            vec![call(PAY), same, call(WEIGH)]
        }
        I::CallMethod(..) => vec![same, call(WEIGH)],
        I::ApplyFilter(name, count, _) => {
            let count = named_call(count)?;
            vec![I::LoadConst(Value::from(*name)), I::ApplyFilter(FILTER, count, NOT_KEPT), call(WEIGH)]
        }
        I::PerformTest(name, count, _) => {
            let count = named_call(count)?;
            vec![I::LoadConst(Value::from(*name)), I::PerformTest(TEST, count, NOT_KEPT)]
        }
        I::SetAttr(_) => vec![I::Swap, call(WEIGH_ASSIGNED), I::Swap, same],
        I::Eq | I::Ne | I::Gt | I::Gte | I::Lt | I::Lte | I::In | I::CompareAndPreserve(_) => {
            vec![call(PAY), same]
        }
        _ => vec![same],
    })
}

/// How many arguments a filter or test takes with its name.
fn named_call(count: &Option<u16>) -> Result<Option<u16>, Error> {
    let named = count.and_then(|count| count.checked_add(1));
    let reason = "filters and tests take no unpacked arguments";
    named.map(Some).ok_or_else(|| Error::new(ErrorKind::SyntaxError, reason))
}

/// Where an instruction may go on.
fn target<'a>(instruction: &'a mut Instruction<'_>) -> Option<&'a mut u32> {
    use Instruction as I;
    if let I::Iterate(target)
    | I::Jump(target)
    | I::JumpIfFalse(target)
    | I::JumpIfFalseOrPop(target)
    | I::JumpIfTrueOrPop(target)
    | I::BuildMacro(_, target, _) = instruction
    {
        return Some(target);
    }
    None
}
