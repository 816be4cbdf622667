//! Replaces what a batch names of earlier steps by what they found: sampled tokens, and how many drafts
//! stand.

use super::{Steps, unknown};
use crate::sampling::SampleRow;
use crate::{Batch, DeviceError, Length, StepId, TokenSource};
use std::borrow::Cow;

/// A batch in which every length is known, and every token but those that only the device knows.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The batch.
    pub batch: Batch,
    /// By how much each sequence lies below its greatest length.
    pub down: Vec<u32>,
}

impl Resolved {
    /// How to draw each token, each index moved down with its sequence.
    pub fn moved<'a>(&self, rows: &'a [SampleRow]) -> Result<Cow<'a, [SampleRow]>, DeviceError> {
        let outputs = || self.batch.outputs.iter().filter(|output| output.want.token);
        let wanted = outputs().count();
        if rows.len() != wanted {
            let reason = format!("{wanted} outputs want a token, {} rows say how", rows.len());
            return Err(unknown("row of sampling parameters", rows.len().min(wanted) as u64, reason));
        }
        if self.down.iter().all(|by| *by == 0) {
            return Ok(Cow::Borrowed(rows));
        }
        let lowered = outputs().zip(rows).map(|(output, row)| {
            let sequence = self.batch.rows[output.row as usize].sequence;
            let index = lower(row.index, self.down[sequence as usize])?;
            Ok(SampleRow { index, ..row.clone() })
        });
        lowered.collect::<Result<_, _>>().map(Cow::Owned)
    }

    /// Becomes the batch with everything known that it names of earlier steps over this state.
    pub fn fill<K>(&mut self, batch: &Batch, steps: &Steps<K>) -> Result<(), DeviceError> {
        let Self { batch: known, down } = self;
        known.clone_from(batch);
        down.clear();
        for (sequence, part) in batch.sequences.iter().enumerate() {
            let shift = match part.length {
                Length::Exact(_) => None,
                Length::AtMost { after, sequence, .. } => Some((after, steps.rejected(after, sequence)?)),
            };
            if let Some((after, by)) = shift {
                move_down(known, sequence, after, by)?;
            }
            down.push(shift.map_or(0, |(_, by)| by));
        }
        for row in &mut known.rows {
            if let TokenSource::Sampled { step, output } = row.token {
                row.token = steps.source(step, output)?;
            }
        }
        Ok(())
    }
}

/// Moves a sequence down, with all that it names of the step that decided so.
fn move_down(batch: &mut Batch, sequence: usize, after: StepId, by: u32) -> Result<(), DeviceError> {
    let part = &mut batch.sequences[sequence];
    part.length = Length::Exact(lower(part.length.at_most(), by)?);
    let range = part.rows.start as usize..part.rows.end as usize;
    for row in &mut batch.rows[range.clone()] {
        row.index = lower(row.index, by)?;
        for axis in &mut row.position {
            *axis = lower(*axis, by)?;
        }
        if let TokenSource::Sampled { step, output } = &mut row.token
            && *step == after
        {
            *output = lower(*output, by)?;
        }
    }
    for handed in batch.handed.iter_mut().filter(|handed| handed.step == after) {
        for row in &mut handed.row_map[range.clone()] {
            *row = lower(*row, by)?;
        }
    }
    Ok(())
}

fn lower(number: u32, by: u32) -> Result<u32, DeviceError> {
    number
        .checked_sub(by)
        .ok_or_else(|| unknown("number", number, format!("{by} rejected drafts move it below 0")))
}
