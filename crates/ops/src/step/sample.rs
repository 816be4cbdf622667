//! Drawing tokens and confirming drafts.

use super::unknown;
use crate::sampling::{Draw, Drawer, History, SampleRow};
use crate::{Batch, DeviceError, Row, RowKind, SequenceRows, TokenId, TokenSource};

/// What is known of an output that wants a token.
#[derive(Clone, Copy, Debug)]
pub enum Scores<'a> {
    /// Its scores, `[vocabulary]`.
    Row(&'a [f32]),
    /// What the device drew from them.
    Drawn(Draw),
}

/// Fills `draws` with a draw for each output that wants a token; `scores` gives what is known of an output.
///
/// A row's draw remembers the sequence's history and the drafts before it that stand; afterwards the history
/// has what each standing row drew.
pub fn sample<'a>(
    scores: &dyn Fn(usize) -> Scores<'a>,
    batch: &Batch,
    rows: &[SampleRow],
    histories: &mut [History],
    (drawer, draws): (&mut Drawer<'_>, &mut Vec<Option<Draw>>),
) -> Result<(), DeviceError> {
    let mut rows = rows.iter();
    draws.clear();
    for sequence in &batch.sequences {
        let mut none = History::default();
        let history = match sequence.sampler {
            Some(slot) => {
                let slots = histories.len();
                let missing = || unknown("sampler slot", slot.0, format!("the state has {slots}"));
                histories.get_mut(slot.0 as usize).ok_or_else(missing)?
            }
            None => &mut none,
        };
        let mut walk = Walk::new();
        for (row, place) in batch.rows[range(sequence)].iter().zip(sequence.rows.clone()) {
            walk.enter(row);
            let output = draws.len();
            let asked = batch.outputs.get(output).filter(|output| output.row == place);
            let Some(asked) = asked else {
                walk.leave(None);
                continue;
            };
            let drawn = asked
                .want
                .token
                .then(|| rows.next().expect("there is a row for each output that wants a token"));
            let found = drawn.map(|how| match scores(output) {
                Scores::Row(row) => drawer.draw(row, how, history),
                Scores::Drawn(draw) => draw,
            });
            let token = found.and_then(|draw| draw.token);
            if walk.stands {
                found.into_iter().for_each(|draw| history.stands(draw));
            }
            walk.leave(token);
            draws.push(found);
        }
    }
    Ok(())
}

/// For each sequence, how many of its rows stand, given the id of each output.
pub fn accept(ids: &[Option<u32>], batch: &Batch, standing: &mut Vec<u32>) {
    let sampled = |row: u32| {
        let output = batch.outputs.binary_search_by_key(&row, |output| output.row).ok()?;
        ids[output].map(TokenId)
    };
    let stands = |sequence: &SequenceRows| {
        let mut walk = Walk::new();
        let rows = batch.rows[range(sequence)].iter().zip(sequence.rows.clone());
        let stands = rows.filter(|(row, place)| {
            walk.enter(row);
            walk.leave(sampled(*place));
            walk.stands
        });
        stands.count() as u32
    };
    standing.clear();
    standing.extend(batch.sequences.iter().map(stands));
}

/// A walk over the rows of a sequence that knows whether the present one stands.
struct Walk {
    stands: bool,
    sampled: Option<TokenId>,
}

impl Walk {
    fn new() -> Self {
        Self { stands: true, sampled: None }
    }

    fn enter(&mut self, row: &Row) {
        let confirmed = match row.kind {
            RowKind::Prompt | RowKind::Decode => true,
            RowKind::Draft(_) => self.sampled.is_some_and(|token| row.token == TokenSource::Known(token)),
        };
        self.stands &= confirmed;
    }

    fn leave(&mut self, sampled: Option<TokenId>) {
        self.sampled = sampled;
    }
}

fn range(sequence: &SequenceRows) -> std::ops::Range<usize> {
    sequence.rows.start as usize..sequence.rows.end as usize
}
