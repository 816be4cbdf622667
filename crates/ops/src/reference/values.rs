//! Values while a step runs.

/// What a node made.
#[derive(Clone, Debug)]
pub(super) enum Made {
    /// Float32 numbers.
    Numbers(Numbers),
    /// Ids, a row each; a row without one carries an embedding or was not sampled.
    Ids(Vec<Option<u32>>),
}

/// `[rows, width]` numbers, row-major.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Elements of a row.
    pub width: usize,
    /// Row after row.
    pub data: Vec<f32>,
}

impl Numbers {
    /// Rows of `width` elements each.
    pub fn new(width: usize, data: Vec<f32>) -> Self {
        Self { width, data }
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.data.len() / self.width
    }

    /// Row after row.
    pub fn rows(&self) -> std::slice::Chunks<'_, f32> {
        self.data.chunks(self.width)
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.width..(row + 1) * self.width]
    }

    /// The same number of columns, each element changed on its own.
    pub fn map(&self, change: impl Fn(f32) -> f32) -> Numbers {
        Numbers::new(self.width, self.data.iter().map(|x| change(*x)).collect())
    }

    /// The rows of these numbers, in this order.
    pub fn pick(&self, rows: impl Iterator<Item = usize>) -> Numbers {
        Numbers::new(self.width, rows.flat_map(|row| self.row(row)).copied().collect())
    }
}

impl Made {
    pub(super) fn numbers(&self) -> &Numbers {
        match self {
            Made::Numbers(numbers) => numbers,
            Made::Ids(_) => unreachable!("the verifier saw numbers here"),
        }
    }

    pub(super) fn ids(&self) -> &[Option<u32>] {
        match self {
            Made::Ids(ids) => ids,
            Made::Numbers(_) => unreachable!("the verifier saw ids here"),
        }
    }

    /// As it is shown to a tracer: ids as numbers, a missing one as not a number.
    pub(super) fn shown(&self) -> Vec<f32> {
        match self {
            Made::Numbers(numbers) => numbers.data.clone(),
            Made::Ids(ids) => ids.iter().map(|id| id.map_or(f32::NAN, |id| id as f32)).collect(),
        }
    }
}

impl From<Numbers> for Made {
    fn from(numbers: Numbers) -> Self {
        Made::Numbers(numbers)
    }
}

/// The sum of products, from left to right.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `exp(x) / sum(exp(x))`, by way of the largest element.
pub fn softmax(x: &[f32]) -> Vec<f32> {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
