//! Weights as the kernels read them: matrices in panels or in rows, vectors as float32.
//!
//! A matrix of codes is packed into panels, all members at once, tensor by tensor; where products are to be float32,
//! and for formats without panels, it keeps its rows. Both lie in one arena.

use crate::arena::{Arena, Place, Reserved};
use crate::kernels::Crew;
use crate::options::ActivationFormat;
use crate::panels::{Panels, bytes_of_panel, pack};
use gannet_ops::numerics::LANES;
use gannet_ops::{DeviceError, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
use gannet_tensor::Format;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Panels of a part of the work of packing.
const PANELS_PER_PART: usize = 4;
/// Fours of rows of such a part.
const FOURS_PER_PART: usize = 64;

/// A weight in memory.
pub(crate) enum Weight {
    /// Decoded: norms, biases, gates, and convolutions as `[kernel, channels]`.
    Vector(Vec<f32>),
    /// In the format of the checkpoint.
    Matrix(Matrix),
}

/// `[rows, columns]`; the matrices of experts follow one another.
pub(crate) struct Matrix {
    /// Of all matrices of a stack.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) layout: Layout,
}

/// How a matrix lies in memory.
pub(crate) enum Layout {
    Rows(RowMatrix),
    Panels(Panels),
}

/// Rows of plain numbers that lie interleaved, sixteen numbers of each after the other: read together they are one stream,
/// as the memory gives four streams half of its rate.
pub(crate) const TOGETHER: usize = 4;

/// A matrix in the format of the checkpoint. Rows of plain numbers lie in fours, see [`TOGETHER`], but for the last few of a
/// matrix; other rows lie as in the checkpoint.
pub(crate) struct RowMatrix {
    pub(crate) format: Format,
    /// Of all matrices of a stack.
    pub(crate) rows: usize,
    /// Of one matrix.
    pub(crate) matrix_rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_bytes: usize,
    place: Place,
}

/// A row of a matrix: whole runs, `stride` bytes from one to the next, and what is left beyond them.
#[derive(Clone, Copy)]
pub(crate) struct RowView<'a> {
    runs: &'a [u8],
    stride: usize,
    pub(crate) rest: &'a [u8],
}

impl<'a> RowView<'a> {
    /// A run of so many bytes, which are those of all runs.
    #[inline(always)]
    pub(crate) fn run(&self, number: usize, bytes: usize) -> &'a [u8] {
        &self.runs[number * self.stride..][..bytes]
    }
}

impl RowMatrix {
    /// The bytes of a row that doesn't lie in fours.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.place.bytes()[row * self.row_bytes..][..self.row_bytes]
    }

    /// A row in runs of so many bytes.
    #[inline(always)]
    pub(crate) fn view(&self, row: usize, run_bytes: usize) -> RowView<'_> {
        let whole = self.row_bytes / run_bytes * run_bytes;
        let place = row % self.matrix_rows;
        let first = place / TOGETHER * TOGETHER;
        if bytes_together(self.format).is_none() || first + TOGETHER > self.matrix_rows {
            let (runs, rest) = self.row(row).split_at(whole);
            return RowView { runs, stride: run_bytes, rest };
        }
        let start = (row - place + first) * self.row_bytes;
        let four = &self.place.bytes()[start..start + TOGETHER * self.row_bytes];
        let (runs, rest) = four.split_at(TOGETHER * whole);
        let (number, left) = (place - first, self.row_bytes - whole);
        let runs = &runs[(number * run_bytes).min(runs.len())..];
        RowView { runs, stride: TOGETHER * run_bytes, rest: &rest[number * left..][..left] }
    }
}

/// Bytes of a row that follow each other where rows of this format lie in fours: sixteen numbers.
fn bytes_together(format: Format) -> Option<usize> {
    matches!(format, Format::F32 | Format::F16 | Format::Bf16).then(|| LANES * format.block_bytes())
}

/// Four rows of a checkpoint, one after the other, to their place.
fn interleave(rows: &[u8], run_bytes: usize, out: &mut [u8]) {
    let row_bytes = rows.len() / TOGETHER;
    let whole = row_bytes / run_bytes * run_bytes;
    let (runs, rest) = out.split_at_mut(TOGETHER * whole);
    for (number, row) in rows.chunks_exact(row_bytes).enumerate() {
        let (row, left) = row.split_at(whole);
        let places = runs.chunks_exact_mut(run_bytes).skip(number).step_by(TOGETHER);
        places.zip(row.chunks_exact(run_bytes)).for_each(|(to, from)| to.copy_from_slice(from));
        rest[number * left.len()..][..left.len()].copy_from_slice(left);
    }
}

/// All weights of a model and its drafters, by canonical name.
pub(crate) struct CpuWeights {
    by_name: HashMap<String, (Vec<usize>, Arc<Weight>)>,
}

impl CpuWeights {
    pub(crate) fn upload(
        crew: &mut Crew<'_>,
        activations: ActivationFormat,
        source: &dyn WeightSource,
        uses: &[WeightUse],
    ) -> Result<Self, DeviceError> {
        let mut arena = Arena::default();
        let mut laid: HashMap<&str, (&WeightUse, Laid)> = HashMap::new();
        for used in uses {
            if !laid.contains_key(&*used.name) {
                let mut to = Destination { crew: &mut *crew, activations, arena: &mut arena };
                let weight = to.lay(used, &source.weight(&used.name)?)?;
                laid.insert(&used.name, (used, weight));
            }
        }
        let place = arena.freeze();
        let weight = |(used, weight): (&WeightUse, Laid)| {
            (used.name.clone(), (used.shape.clone(), Arc::new(weight.at(&place))))
        };
        Ok(Self { by_name: laid.into_values().map(weight).collect() })
    }

    /// The weight that a program asks for.
    pub(crate) fn get(&self, used: &WeightUse) -> Result<Arc<Weight>, WeightError> {
        let (name, file) = (used.name.clone(), "the uploaded weights".to_owned());
        let Some((shape, weight)) = self.by_name.get(&used.name) else {
            return Err(WeightError::Missing { name, file });
        };
        if *shape != used.shape {
            return Err(WeightError::WrongShape {
                name,
                file,
                expected: used.shape.clone(),
                found: shape.clone(),
            });
        }
        Ok(Arc::clone(weight))
    }
}

impl Weights for CpuWeights {
    fn bytes(&self) -> u64 {
        let bytes = |weight: &Weight| match weight {
            Weight::Vector(vector) => size_of_val(&vector[..]),
            Weight::Matrix(Matrix { layout: Layout::Rows(rows), .. }) => rows.place.bytes().len(),
            Weight::Matrix(Matrix { layout: Layout::Panels(panels), .. }) => panels.place.bytes().len(),
        };
        self.by_name.values().map(|(_, weight)| bytes(weight) as u64).sum()
    }

    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A weight whose memory is reserved and filled.
enum Laid {
    Vector(Vec<f32>),
    Matrix { size: MatrixSize, panel_bytes: Option<usize>, reserved: Reserved },
}

/// A matrix of a checkpoint: its bytes are whole rows.
#[derive(Clone, Copy)]
struct MatrixSize {
    format: Format,
    /// Of a stack.
    matrices: usize,
    /// Of one matrix.
    rows: usize,
    columns: usize,
    row_bytes: usize,
}

impl Laid {
    fn at(self, place: &impl Fn(Reserved) -> Place) -> Weight {
        let (size, panel_bytes, reserved) = match self {
            Laid::Vector(vector) => return Weight::Vector(vector),
            Laid::Matrix { size, panel_bytes, reserved } => (size, panel_bytes, reserved),
        };
        let MatrixSize { format, matrices, rows, columns, row_bytes } = size;
        let place = place(reserved);
        let layout = match panel_bytes {
            Some(panel_bytes) => Layout::Panels(Panels { format, rows, columns, panel_bytes, place }),
            None => Layout::Rows(RowMatrix {
                format,
                rows: matrices * rows,
                matrix_rows: rows,
                columns,
                row_bytes,
                place,
            }),
        };
        Weight::Matrix(Matrix { rows: matrices * rows, columns, layout })
    }
}

/// Where weights go, and who brings them there.
struct Destination<'a, 'b> {
    crew: &'a mut Crew<'b>,
    activations: ActivationFormat,
    arena: &'a mut Arena,
}

impl Destination<'_, '_> {
    fn lay(&mut self, used: &WeightUse, tensor: &WeightTensor<'_>) -> Result<Laid, DeviceError> {
        let (name, file) = (used.name.clone(), "the checkpoint".to_owned());
        if tensor.shape != used.shape {
            let (expected, found) = (used.shape.clone(), tensor.shape.clone());
            return Err(WeightError::WrongShape { name, file, expected, found }.into());
        }
        let Some(size) = matrix_size(tensor) else {
            let (format, shape, found) = (tensor.format, &tensor.shape, tensor.bytes.len());
            let reason =
                format!("{found} bytes are not a tensor of shape {shape:?} in whole blocks of {format}");
            return Err(WeightError::Unreadable { name, file, reason }.into());
        };
        let elements = size.matrices * size.rows * size.columns;
        match used.role {
            WeightRole::Vector => Ok(Laid::Vector(decoded(tensor, elements))),
            WeightRole::Convolution => Ok(Laid::Vector(transposed(&decoded(tensor, elements), size.columns))),
            WeightRole::Embedding => self.rows(&name, size, &tensor.bytes),
            WeightRole::Matrix | WeightRole::TiedEmbedding | WeightRole::Experts => {
                match self.panel_bytes(&size, &tensor.bytes) {
                    Some(panel_bytes) => self.panels(&name, size, panel_bytes, &tensor.bytes),
                    None => self.rows(&name, size, &tensor.bytes),
                }
            }
        }
    }

    /// Bytes of a panel, where the matrix is to have panels.
    fn panel_bytes(&self, size: &MatrixSize, bytes: &[u8]) -> Option<usize> {
        match self.activations {
            ActivationFormat::Float32 => None,
            // A scale that is no number has no bits as a power of two.
            ActivationFormat::Int8 if has_powers_that_are_none(size, bytes) => None,
            ActivationFormat::Int8 => bytes_of_panel(size.format, size.columns),
        }
    }

    fn rows(&mut self, name: &str, size: MatrixSize, bytes: &[u8]) -> Result<Laid, DeviceError> {
        let reserved = self.arena.reserve(bytes.len(), || format!("weight `{name}`"))?;
        let out = self.arena.bytes_mut(&reserved);
        let MatrixSize { rows, row_bytes, .. } = size;
        let Some(run_bytes) = bytes_together(size.format).filter(|_| rows >= TOGETHER && row_bytes > 0)
        else {
            out.copy_from_slice(bytes);
            return Ok(Laid::Matrix { size, panel_bytes: None, reserved });
        };
        let four = TOGETHER * row_bytes;
        for (out, matrix) in out.chunks_exact_mut(rows * row_bytes).zip(bytes.chunks_exact(rows * row_bytes))
        {
            let (fours, last) = out.split_at_mut(rows / TOGETHER * four);
            self.crew.rows(fours, four, FOURS_PER_PART, |first, out, _| {
                let from = matrix[first * four..].chunks_exact(four);
                out.chunks_exact_mut(four).zip(from).for_each(|(out, rows)| interleave(rows, run_bytes, out));
            });
            last.copy_from_slice(&matrix[fours.len()..]);
        }
        Ok(Laid::Matrix { size, panel_bytes: None, reserved })
    }

    fn panels(
        &mut self,
        name: &str,
        size: MatrixSize,
        panel_bytes: usize,
        bytes: &[u8],
    ) -> Result<Laid, DeviceError> {
        let per_matrix = size.rows.div_ceil(LANES);
        let what = || format!("weight `{name}`");
        let panels = size.matrices.checked_mul(per_matrix);
        let needed = panels.and_then(|panels| panels.checked_mul(panel_bytes)).unwrap_or(usize::MAX);
        let reserved = self.arena.reserve(needed, what)?;
        let out = self.arena.bytes_mut(&reserved);
        self.crew.rows(out, panel_bytes, PANELS_PER_PART, |first, out, _| {
            for (panel, out) in out.chunks_exact_mut(panel_bytes).enumerate() {
                let (matrix, panel) = ((first + panel) / per_matrix, (first + panel) % per_matrix);
                let start = matrix * size.rows + panel * LANES;
                let end = (start + LANES).min((matrix + 1) * size.rows);
                let rows = &bytes[start * size.row_bytes..end * size.row_bytes];
                pack(size.format, rows, size.row_bytes, out);
            }
        });
        Ok(Laid::Matrix { size, panel_bytes: Some(panel_bytes), reserved })
    }
}

/// Whether some scale of an mxfp4 matrix is no number.
fn has_powers_that_are_none(size: &MatrixSize, bytes: &[u8]) -> bool {
    let block_bytes = size.format.block_bytes();
    size.format == Format::Mxfp4 && bytes.iter().step_by(block_bytes).any(|scale| *scale == u8::MAX)
}

/// The tensor as a stack of matrices, where its bytes are the whole rows that its shape says.
fn matrix_size(tensor: &WeightTensor<'_>) -> Option<MatrixSize> {
    let (columns, outer) = tensor.shape.split_last().unwrap_or((&1, &[]));
    let (rows, outer) = outer.split_last().unwrap_or((&1, &[]));
    let row_bytes = tensor.format.row_bytes(*columns)?;
    let matrices = outer.iter().try_fold(1usize, |matrices, dim| matrices.checked_mul(*dim))?;
    let all = matrices.checked_mul(*rows)?.checked_mul(row_bytes)?;
    let size = MatrixSize { format: tensor.format, matrices, rows: *rows, columns: *columns, row_bytes };
    (all == tensor.bytes.len()).then_some(size)
}

fn decoded(tensor: &WeightTensor<'_>, elements: usize) -> Vec<f32> {
    let mut vector = vec![0.0; elements];
    tensor.format.decode(&tensor.bytes, &mut vector);
    vector
}

/// `[rows, columns]` as `[columns, rows]`.
fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns)).copied().collect()
}
