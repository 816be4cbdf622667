//! Which rows and columns go where.

use super::values::Numbers;
use super::{unknown, weights::Weight};
use crate::{Batch, DeviceError, PoolKind, TokenSource};

/// The id of each row that has one. Sampled ids are known by now.
pub(super) fn ids(batch: &Batch) -> Vec<Option<u32>> {
    let id = |token: TokenSource| match token {
        TokenSource::Known(id) => Some(id.0),
        TokenSource::Sampled { .. } | TokenSource::Embedding(_) => None,
    };
    batch.rows.iter().map(|row| id(row.token)).collect()
}

/// Row `id` of the weight, or the embedding that the row brings in place of an id.
pub(super) fn embed(
    ids: &[Option<u32>],
    weight: &Weight,
    embeddings: Option<&Numbers>,
) -> Result<Numbers, DeviceError> {
    let (vocabulary, width) = (weight.shape[0], weight.shape[1]);
    let mut x = Vec::with_capacity(ids.len() * width);
    for (row, id) in ids.iter().enumerate() {
        match (id, embeddings) {
            (Some(id), _) if (*id as usize) < vocabulary => x.extend(weight.row(*id as usize)),
            (Some(id), _) => return Err(DeviceError::UnknownToken { id: *id, vocabulary }),
            (None, Some(embeddings)) => x.extend(embeddings.row(row)),
            (None, None) => return Err(unknown("id of row", row as u64, "the program reads no embeddings")),
        }
    }
    Ok(Numbers::new(width, x))
}

/// The embedding of each row that brings one; zeros for the others.
pub(super) fn embeddings(batch: &Batch, width: usize) -> Result<Numbers, DeviceError> {
    let mut x = Vec::with_capacity(batch.rows.len() * width);
    for row in &batch.rows {
        match row.token {
            TokenSource::Embedding(number) => {
                let found = batch.embeddings.chunks_exact(width).nth(number as usize);
                let rows = batch.embeddings.len() / width;
                let missing = || unknown("embedding", number, format!("the batch brings {rows} of {width}"));
                x.extend(found.ok_or_else(missing)?);
            }
            TokenSource::Known(_) | TokenSource::Sampled { .. } => x.extend(std::iter::repeat_n(0.0, width)),
        }
    }
    Ok(Numbers::new(width, x))
}

/// The rows whose result is asked for.
pub(super) fn select_outputs(x: &Numbers, batch: &Batch) -> Numbers {
    x.pick(batch.outputs.iter().map(|output| output.row as usize))
}

/// One vector a sequence, divided by its length.
pub(super) fn pool(x: &Numbers, kind: PoolKind, batch: &Batch) -> Numbers {
    let mut pooled = Vec::new();
    for sequence in &batch.sequences {
        let rows: Vec<&[f32]> = sequence.rows.clone().map(|row| x.row(row as usize)).collect();
        let counted = match kind {
            PoolKind::First => &rows[..1],
            PoolKind::Last => &rows[rows.len() - 1..],
            PoolKind::Mean => &rows[..],
        };
        let mean = |column: usize| counted.iter().map(|row| row[column]).sum::<f32>() / counted.len() as f32;
        let vector: Vec<f32> = (0..x.width).map(mean).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        pooled.extend(vector.iter().map(|x| x / length));
    }
    Numbers::new(x.width, pooled)
}

/// The row that the map names for each row of the batch.
pub(super) fn gather_rows(x: &Numbers, row_map: &[u32]) -> Result<Numbers, DeviceError> {
    let rows = x.count();
    match row_map.iter().find(|row| **row as usize >= rows) {
        Some(row) => Err(unknown("handed row", *row, format!("the captured value has {rows} rows"))),
        None => Ok(x.pick(row_map.iter().map(|row| *row as usize))),
    }
}

/// Columns `start .. start + width` of each group.
pub fn slice(x: &Numbers, groups: usize, start: usize, width: usize) -> Numbers {
    let columns = x.data.chunks(x.width / groups).flat_map(|group| &group[start..start + width]);
    Numbers::new(groups * width, columns.copied().collect())
}

/// Columns side by side.
pub fn concat(parts: &[&Numbers]) -> Numbers {
    let rows = 0..parts[0].count();
    let data = rows.flat_map(|row| parts.iter().flat_map(move |part| part.row(row))).copied().collect();
    Numbers::new(parts.iter().map(|part| part.width).sum(), data)
}
