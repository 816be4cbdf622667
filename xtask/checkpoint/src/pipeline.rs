//! Tensors as bytes, made by all processors and handed on in order.
//!
//! The unit is a piece: so many whole blocks of one tensor, with a random stream of their own. Worker `w` of `n` makes
//! the pieces `w`, `w + n`, ... and has a few of them ready; the caller takes from the workers in turns. So the bytes
//! don't depend on the number of workers, and the memory not on the size of the model.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, anyhow};
use gannet_tensor::Format;
use gannet_tensor::decode::codes::bf16_bits;
use gannet_tensor::decode::{RandomBlocks, f16_bits};

use super::random::Random;
use super::weights::{Content, Weight};

/// Elements of a piece, at most: whole blocks in every format, and the same for all, so that formats of floats round the
/// same numbers.
const PIECE_ELEMENTS: usize = 1 << 18;

/// Pieces that a worker has ready.
const READY_PIECES: usize = 2;

/// A tensor and how its bytes are made.
pub(super) struct Encoded {
    pub weight: Weight,
    pub format: Format,
    /// For formats of blocks.
    blocks: Option<RandomBlocks>,
}

impl Encoded {
    pub(super) fn bytes(&self) -> usize {
        self.weight.elements() / self.format.block_elements() * self.format.block_bytes()
    }

    fn block_count(&self) -> usize {
        self.weight.elements() / self.format.block_elements()
    }
}

/// The tensors of these weights in these formats.
pub(super) fn encode(weights: Vec<Weight>, formats: &[Format]) -> Result<Vec<Encoded>> {
    // Each format is measured once.
    let mut measured = HashMap::new();
    let encode = |(weight, &format): (Weight, &Format)| {
        let blocks = match &weight.content {
            Content::Normal { deviation, .. } if format.is_quantised() => {
                let blocks = measured.entry(format).or_insert_with(|| RandomBlocks::of(format)).as_ref();
                let blocks =
                    blocks.ok_or_else(|| anyhow!("`{format}` is no format of blocks that weights come in"));
                Some(blocks?.with_deviation(*deviation))
            }
            Content::Normal { .. }
            | Content::Uniform { .. }
            | Content::MinusExponential { .. }
            | Content::Numbers(_) => None,
        };
        Ok(Encoded { weight, format, blocks })
    };
    weights.into_iter().zip(formats).map(encode).collect()
}

/// Some blocks of a tensor.
struct Piece<'a> {
    tensor: &'a Encoded,
    /// Its number within the tensor.
    number: usize,
    bytes: usize,
}

/// Hands the bytes of all tensors, in order, to `sink`. Returns how many there were.
pub(super) fn stream(
    tensors: &[Encoded],
    seed: u64,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let start = |worker| {
            let (sender, receiver) = sync_channel(READY_PIECES);
            scope.spawn(move || work(pieces(tensors).skip(worker).step_by(workers), seed, &sender));
            receiver
        };
        let receivers: Vec<Receiver<Vec<u8>>> = (0..workers).map(start).collect();
        let mut written = 0;
        for (index, _) in pieces(tensors).enumerate() {
            let bytes = receivers[index % workers].recv().context("a worker ended before its work")?;
            sink(&bytes)?;
            written += bytes.len() as u64;
        }
        Ok(written)
    })
}

fn pieces(tensors: &[Encoded]) -> impl Iterator<Item = Piece<'_>> {
    tensors.iter().flat_map(|tensor| {
        let block_bytes = tensor.format.block_bytes();
        let each = PIECE_ELEMENTS / tensor.format.block_elements();
        let blocks = tensor.block_count();
        let piece = move |number| {
            let bytes = each.min(blocks - number * each) * block_bytes;
            Piece { tensor, number, bytes }
        };
        (0..blocks.div_ceil(each)).map(piece)
    })
}

/// Makes pieces until there are no more, or nobody wants them.
fn work<'a>(pieces: impl Iterator<Item = Piece<'a>>, seed: u64, sender: &SyncSender<Vec<u8>>) {
    for piece in pieces {
        let mut bytes = vec![0; piece.bytes];
        let mut random = Random::new(seed, &piece.tensor.weight.name, piece.number as u64);
        match &piece.tensor.blocks {
            Some(blocks) => blocks.fill(&mut || random.bits(), &mut bytes),
            None => fill_floats(&piece, &mut random, &mut bytes),
        }
        if sender.send(bytes).is_err() {
            return;
        }
    }
}

fn fill_floats(piece: &Piece<'_>, random: &mut Random, bytes: &mut [u8]) {
    let format = piece.tensor.format;
    match piece.tensor.weight.content {
        Content::Normal { mean, deviation } => write(format, bytes, || mean + deviation * random.normal()),
        Content::Uniform { low, high } => write(format, bytes, || low + (high - low) * random.fraction()),
        Content::MinusExponential { low, high } => {
            write(format, bytes, || -(low + (high - low) * random.fraction()).exp());
        }
        Content::Numbers(ref numbers) => {
            let first = piece.number * PIECE_ELEMENTS;
            let mut numbers = numbers[first..].iter();
            write(format, bytes, || *numbers.next().expect("a tensor has a number for each element"));
        }
    }
}

/// Fills `bytes` with floats.
fn write(format: Format, bytes: &mut [u8], mut next: impl FnMut() -> f32) {
    if format == Format::F32 {
        bytes.as_chunks_mut().0.iter_mut().for_each(|bytes| *bytes = next().to_le_bytes());
    } else if format == Format::F16 {
        bytes.as_chunks_mut().0.iter_mut().for_each(|bytes| *bytes = f16_bits(next()).to_le_bytes());
    } else {
        bytes.as_chunks_mut().0.iter_mut().for_each(|bytes| *bytes = bf16_bits(next()).to_le_bytes());
    }
}
