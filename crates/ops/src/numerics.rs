//! The named orders of reduction. Every kernel that reduces follows one of these, so that a row's bits depend
//! on its own sequence and on absolute positions alone.
//!
//! *Matrix products*: ascending by column, in [`LANES`] interleaved partial sums with fused multiply-add, folded
//! by [`fold`]. *Norms*: the same. *Softmax and log-probabilities over the vocabulary*: partitions of
//! [`VOCABULARY_PARTITION`] ids, folded from left to right. *Attention*: a score by ascending channel, keys by absolute
//! index in blocks of [`KEY_BLOCK`], a running maximum inside a split of [`KEY_SPLIT`] keys, splits folded from left to
//! right.
//! *Experts*: ascending by expert id, the shared expert last. *Ties*: the lowest id.

/// Partial sums of a float reduction: the lanes of the widest vector register; narrower ones use several.
pub const LANES: usize = 16;

/// Keys that attention scores at once.
pub const KEY_BLOCK: usize = 64;

/// Keys that share one running maximum in attention.
pub const KEY_SPLIT: usize = 256;

/// Vocabulary entries that one partial sum of a softmax covers.
pub const VOCABULARY_PARTITION: usize = 4096;

/// Folds partial sums: lane i takes lane i + 8, then + 4, + 2, + 1.
pub fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The largest of some lanes, by the halves of [`fold`]; beside one that is no number it may be any of them.
#[inline(always)]
pub fn largest(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            let other = lanes[lane + half];
            lanes[lane] = if other > lanes[lane] { other } else { lanes[lane] };
        }
        half /= 2;
    }
    lanes[0]
}

/// The dot product in the named order: element i goes to lane `i % LANES`.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (lane, (a, b)) in a.iter().zip(b).enumerate() {
            lanes[lane] = a.mul_add(*b, lanes[lane]);
        }
    }
    fold(lanes)
}

/// The sum of squares in the named order.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    dot(x, x)
}
