//! Draws on the host by several threads: each draw is one thread's, in memory of its own, so that it is the same whoever
//! makes it.

use gannet_ops::sampling::passes::PlainPasses;
use gannet_ops::sampling::{Draw, Drawer, Workspace};
use gannet_ops::step::ReadyDraws;
use std::thread;

/// Threads beyond which a step's draws wait for memory.
const THREADS_MAX: usize = 32;

/// Who draws, each with what is kept from draw to draw.
pub(super) struct Drawers {
    workspaces: Vec<Workspace>,
}

impl Drawers {
    /// As many as the process may use processors.
    pub(super) fn here() -> Self {
        Self::new(thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX)))
    }

    fn new(threads: usize) -> Self {
        Self { workspaces: (0..threads).map(|_| Workspace::default()).collect() }
    }

    /// One of them, for draws that wait for others.
    pub(super) fn first<'a>(&'a mut self, passes: &'a mut PlainPasses) -> Drawer<'a> {
        Drawer { passes, workspace: &mut self.workspaces[0] }
    }

    /// Makes draws, each of the scores of its output, and gives them with their outputs. The caller draws too; threads live
    /// for the call.
    pub(super) fn draw<'a>(
        &mut self,
        ready: &ReadyDraws<'_>,
        scores: &(dyn Fn(usize) -> &'a [f32] + Sync),
    ) -> Vec<(usize, Draw)> {
        let mut draws = vec![None; ready.count()];
        let each = ready.count().div_ceil(self.workspaces.len()).max(1);
        let draw_part = |part: usize, draws: &mut [Option<(usize, Draw)>], workspace: &mut Workspace| {
            let mut drawer = Drawer { passes: &mut PlainPasses, workspace };
            for (place, draw) in draws.iter_mut().enumerate() {
                let (output, row, history) = ready.get(part * each + place);
                *draw = Some((output, drawer.draw(scores(output), row, history)));
            }
        };
        let draw_part = &draw_part;
        thread::scope(|scope| {
            let mut parts = draws.chunks_mut(each).zip(&mut self.workspaces).enumerate();
            let first = parts.next();
            for (number, (draws, workspace)) in parts {
                scope.spawn(move || draw_part(number, draws, workspace));
            }
            first.into_iter().for_each(|(number, (draws, workspace))| draw_part(number, draws, workspace));
        });
        draws.into_iter().map(|draw| draw.expect("each part drew all of its own")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::Kept;
    use super::*;
    use gannet_ops::sampling::{History, SampleRow, Sampling, draw};
    use gannet_ops::step::{PendingStep, Steps};
    use gannet_ops::{
        Batch, Length, Output, Row, RowKind, SampleRows, SamplerSlot, SequenceRows, TokenId, TokenSource,
        Want,
    };
    use std::sync::Arc;

    const VOCABULARY: u32 = 9_000;

    /// Sequences of one row each but the second, which has two; every sequence has its sampler, the last one that of the first.
    fn batch(count: u32) -> Batch {
        let rows = count + u32::from(count > 1);
        let sequence_of = |row: u32| row - u32::from(row > 1);
        let row = |row: u32| Row {
            sequence: sequence_of(row),
            token: TokenSource::Known(TokenId(row)),
            index: u32::from(row == 2),
            position: [u32::from(row == 2); 3],
            kind: if row == 2 { RowKind::Draft(0) } else { RowKind::Decode },
        };
        let sequence = |number: u32| SequenceRows {
            rows: number + u32::from(number > 1)..number + 1 + u32::from(number > 0),
            length: Length::Exact(0),
            tables: Vec::new(),
            recurrent: None,
            sampler: Some(SamplerSlot(if number + 1 == count { 0 } else { number })),
            adapter: None,
        };
        let want = Want { token: true, ..Want::default() };
        Batch {
            rows: (0..rows).map(row).collect(),
            sequences: (0..count).map(sequence).collect(),
            outputs: (0..rows).map(|row| Output { row, want }).collect(),
            ..Batch::default()
        }
    }

    fn parameters(row: u32) -> SampleRow {
        let sampling = Sampling {
            temperature: 0.8,
            top_k: [0, 40][row as usize % 2],
            top_p: [1.0, 0.95, 0.9][row as usize % 3],
            repetition_penalty: 1.3,
            ..Sampling::greedy()
        };
        let mask = (0..VOCABULARY.div_ceil(32)).map(|word| (word + row).wrapping_mul(0x9e37_79b9));
        let allowed = (row % 4 == 3).then(|| mask.collect::<Arc<[u32]>>());
        SampleRow { sampling: Arc::new(sampling), seed: 7, choice: 0, index: row, allowed, banned: None }
    }

    #[test]
    fn threads_draw_what_one_draws() {
        for (count, ready_count) in [(1, 1), (3, 2), (20, 19)] {
            let mut step = PendingStep::<Kept>::default();
            step.begin(&batch(count), &Steps::<()>::default()).expect("everything is known");
            let outputs = step.batch().outputs.len() as u32;
            let scores = |output: u32| {
                (0..VOCABULARY).map(move |id| ((id * 7919 + output * 31) % 10_007) as f32 * 0.0008)
            };
            let scores: Vec<Vec<f32>> = (0..outputs).map(|output| scores(output).collect()).collect();
            let rows = SampleRows { rows: (0..outputs).map(parameters).collect() };
            let history = |slot: u32| History::new(&[TokenId(slot * 97)], &[TokenId(8_000 - slot)]);
            let histories: Vec<History> = (0..count).map(history).collect();
            let ready = ReadyDraws::of(&step, &rows, &histories).expect("there is a row for each output");
            assert_eq!(
                ready.count(),
                ready_count,
                "neither a draft's draw nor one of a shared history is ready"
            );
            for threads in [1, 2, 5, 32] {
                let found = Drawers::new(threads).draw(&ready, &|output| &scores[output]);
                let expected = (0..outputs as usize)
                    .filter(|output| *output != 2 && (count == 1 || *output != count as usize));
                let expected = expected.map(|output| {
                    let slot = output - usize::from(output > 1);
                    (output, draw(&scores[output], &rows.rows[output], &histories[slot]))
                });
                assert_eq!(found, expected.collect::<Vec<_>>(), "{count} sequences, {threads} threads");
            }
        }
    }
}
