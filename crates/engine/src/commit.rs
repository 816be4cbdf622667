//! What a step found becomes part of its sequences, and is told to their sinks.

use crate::request::{Event, FinishReason};
use crate::scheduler::{Scheduled, StepPlan};
use crate::sequence::Sequence;
use crate::state::StateManager;
use gannet_ops::{OutputResult, StepOutput};

/// Commits a step; returns which of the running sequences have ended, and why.
pub(crate) fn commit(
    plan: &StepPlan,
    output: StepOutput,
    running: &mut [Sequence],
    state: &mut StateManager,
    context: usize,
) -> Vec<(usize, FinishReason)> {
    let mut results = output.outputs.into_iter();
    let mut ended = Vec::new();
    for part in &plan.scheduled {
        let sequence = &mut running[part.running];
        sequence.computed = part.tokens.end;
        state.commit(&mut sequence.pages, sequence.computed);
        let result = if part.draws { results.next() } else { None };
        if let Some(reason) = advance(sequence, part, result, context) {
            ended.push((part.running, reason));
        }
    }
    ended
}

/// Tells a sequence's sink how far it came; returns why it ends, where it does.
fn advance(
    sequence: &mut Sequence,
    part: &Scheduled,
    result: Option<OutputResult>,
    context: usize,
) -> Option<FinishReason> {
    let prompt = sequence.prompt_tokens();
    if part.tokens.start < prompt {
        let event = Event::Prefilled { computed: part.tokens.end.min(prompt) as u32, prompt: prompt as u32 };
        if sequence.deliver(event).is_err() {
            return Some(FinishReason::Cancelled);
        }
    }
    result.and_then(|result| append(sequence, result, context))
}

fn append(sequence: &mut Sequence, result: OutputResult, context: usize) -> Option<FinishReason> {
    if result.not_finite {
        let index = sequence.tokens.len();
        return Some(FinishReason::Failed(format!(
            "the model's scores for token {index} are not finite numbers"
        )));
    }
    let Some(token) = result.token else {
        return Some(FinishReason::Failed("no token of the vocabulary is allowed here".to_owned()));
    };
    sequence.clock.token_arrives();
    sequence.tokens.push(token);
    if sequence.request.end_tokens.contains(&token) {
        return Some(FinishReason::EndToken(token));
    }
    if sequence.deliver(Event::Token { token, logprobs: result.logprobs }).is_err() {
        return Some(FinishReason::Cancelled);
    }
    if sequence.generated_tokens() >= sequence.request.max_tokens as usize {
        return Some(FinishReason::MaxTokens);
    }
    if sequence.tokens.len() >= context { Some(FinishReason::ContextFull) } else { None }
}
