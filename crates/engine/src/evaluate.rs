//! The scores of given tokens, without drawing any: for perplexity and comparisons.

use crate::batch::scores_of;
use crate::runner::Runner;
use crate::state::{PrefixKey, StateManager};
use gannet_ops::{DeviceError, SampleRows, TokenId};

/// Why tokens can't be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// There are more tokens than the context holds.
    #[error("{tokens} tokens don't fit into the context of {context}")]
    TooLong {
        /// Tokens given.
        tokens: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// The backend failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Runs `tokens` as one sequence from its start and gives the scores `[vocabulary]` of each index from
/// `wanted_from` on to `visit`, in order.
pub fn evaluate(
    runner: &mut Runner,
    tokens: &[TokenId],
    wanted_from: usize,
    mut visit: impl FnMut(usize, &[f32]),
) -> Result<(), EvaluateError> {
    if tokens.len() > runner.context {
        return Err(EvaluateError::TooLong { tokens: tokens.len(), context: runner.context });
    }
    let mut manager = StateManager::new(&runner.layout, &runner.budget);
    let mut state = manager.empty(PrefixKey { numerics: runner.numerics_id, salt: 0 }, 0);
    for start in (0..tokens.len()).step_by(runner.step_rows) {
        let end = tokens.len().min(start + runner.step_rows);
        manager
            .reserve(&mut state, start..end, runner.state.as_mut())?
            .expect("the budget is for the whole context");
        let batch = scores_of(&tokens[start..end], start, wanted_from, &state);
        let first = batch.outputs.first().map_or(0, |output| start + output.row as usize);
        let step = runner.submit(&batch)?;
        runner.sample(step, &SampleRows::default())?;
        state.step_submitted();
        for (place, result) in runner.wait(step)?.outputs.iter().enumerate() {
            visit(first + place, result.logits.as_deref().expect("the scores were asked for"));
        }
        manager.commit(&mut state, end);
    }
    manager.release(&mut state);
    Ok(())
}
