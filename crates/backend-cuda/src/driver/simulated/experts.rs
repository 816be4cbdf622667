//! The kernels of a mixture of experts: the choice and its lists, the products of routed rows, and their sum.

use super::super::Address;
use super::kernels::{Call, Outcome, gated, weight};
use crate::codes::Units;
use crate::number::Number;
use crate::weights::EXPERT_PADDING;
use gannet_ops::Router;
use gannet_ops::reference::values::Numbers;
use gannet_ops::reference::{experts, gates, linear, norms};

/// Words of an item.
const ITEM: usize = 4;
/// Blocks of a cluster of `route_normed`.
pub(super) const CLUSTER_BLOCKS: u32 = 8;

pub(super) fn route_experts(call: &mut Call<'_>) -> Outcome {
    let ([ids, weights, logits], lists) = (call.addresses()?, call.addresses()?);
    let [rows, count, top_k, renormalise, tile] = call.sizes()?;
    let router = Router { experts: count, top_k: top_k as u32, renormalise: renormalise == 1 };
    let logits = call.matrix(logits, rows, count)?;
    let (chosen, likely) = experts::chosen(&logits, &router);
    put_words(call, ids, &chosen)?;
    call.put_floats(weights, &likely)?;
    // Of one block, it sorts too.
    if call.grid() == [1; 3] { group(call, lists, &chosen, [count, top_k, tile]) } else { Ok(()) }
}

/// As three kernels would: the norm of a sum, the product, the choice; with one row the lists too.
pub(super) fn route_normed(call: &mut Call<'_>) -> Outcome {
    let [sum, y, ids, weights, a, b, norm, matrix, bias] = call.addresses()?;
    let (lists, [rows, k, count, top_k, renormalise, stages]) = (call.addresses()?, call.sizes()?);
    let epsilon = call.f32()?;
    let blocks = CLUSTER_BLOCKS as usize * rows.div_ceil(call.size_define("ROWS")?);
    if call.grid() != [blocks as u32, 1, 1] || stages == 0 {
        return Err(call.odd(format!("{:?} blocks in place of {blocks}, {stages} stages", call.grid())));
    }
    let [a, b] = [call.matrix(a, rows, k)?, call.matrix(b, rows, k)?];
    let (added, norm) = (gates::add(&a, &b), call.floats(norm, k)?);
    let normed = norms::rms_norm(&added, &norm, epsilon);
    call.put_floats(sum, &added.data)?;
    call.put("Y", y, &normed.data)?;
    let (matrix, bias) = (call.floats(matrix, count * k)?, call.optional(bias, count)?);
    let logits = linear::linear(&normed, &matrix, bias.as_deref());
    let router = Router { experts: count, top_k: top_k as u32, renormalise: renormalise == 1 };
    let (chosen, likely) = experts::chosen(&logits, &router);
    put_words(call, ids, &chosen)?;
    call.put_floats(weights, &likely)?;
    // A row's experts are all of one row.
    if rows == 1 { group(call, lists, &chosen, [count, top_k, top_k]) } else { Ok(()) }
}

pub(super) fn group_experts(call: &mut Call<'_>) -> Outcome {
    let (lists, ids) = (call.addresses()?, call.address()?);
    let [rows, count, top_k, tile] = call.sizes()?;
    let ids = call.words(ids, rows * top_k)?;
    group(call, lists, &ids, [count, top_k, tile])
}

fn group(
    call: &mut Call<'_>,
    [order, tokens, starts, items]: [Address; 4],
    ids: &[u32],
    [experts, top_k, tile]: [usize; 3],
) -> Outcome {
    let (mut rows, mut made, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for expert in 0..experts as u32 {
        firsts.push((made.len() / ITEM) as u32);
        // The last ones first: the order within an expert is left to chance.
        let own: Vec<u32> = (0..ids.len() as u32).rev().filter(|row| ids[*row as usize] == expert).collect();
        for some in own.chunks(tile) {
            made.extend([expert, rows.len() as u32, some.len() as u32, 0]);
            rows.extend_from_slice(some);
        }
    }
    firsts.push((made.len() / ITEM) as u32);
    let of_tokens: Vec<u32> = rows.iter().map(|row| row / top_k as u32).collect();
    [(order, rows), (tokens, of_tokens), (starts, firsts), (items, made)]
        .into_iter()
        .try_for_each(|(to, words)| put_words(call, to, &words))
}

fn put_words(call: &mut Call<'_>, to: Address, words: &[u32]) -> Outcome {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    call.memory.write(call.entry, to, &bytes)
}

pub(super) fn expert_linear(call: &mut Call<'_>) -> Outcome {
    let [y, x, matrices, bias, order, x_rows, starts, items] = call.addresses()?;
    let [experts, n, k, stride, _chunk, _lists_are_there] = call.sizes()?;
    let blocks = call.grid()[1] as usize;
    let count = call.word(starts, experts)? as usize;
    if count > blocks {
        return Err(call.odd(format!("{count} items for {blocks} blocks")));
    }
    let sources = Sources { x, x_rows: Some(x_rows), matrices, first_expert: 0, bias };
    multiply(call, &sources, (order, items, 0..count), (y, [n, k, stride]))
}

/// Rows that lie in the order of the items, and matrices of some experts.
pub(super) fn experts_many(
    call: &mut Call<'_>,
    [y, x, matrices, bias]: [Address; 4],
    [_, n, k, stride]: [usize; 4],
) -> Outcome {
    let ([order, starts, items], [first_expert, experts]) = (call.addresses()?, call.sizes()?);
    let tile = call.size_define("ROWS")?;
    let [first, end] = [first_expert, first_expert + experts]
        .map(|expert| call.word(starts, expert).map(|item| item as usize));
    let (first, end) = (first?, end?);
    for item in first..end {
        let rows = call.word(items, item * ITEM + 2)? as usize;
        if rows > tile {
            return Err(call.odd(format!("an item of {rows} rows in a tile of {tile}")));
        }
    }
    let sources = Sources { x, x_rows: None, matrices, first_expert, bias };
    multiply(call, &sources, (order, items, first..end), (y, [n, k, stride]))
}

/// What a product by experts reads.
struct Sources {
    x: Address,
    /// The rows of x; `None` where they lie in order.
    x_rows: Option<Address>,
    matrices: Address,
    /// The expert of the first matrix.
    first_expert: usize,
    bias: Address,
}

fn multiply(
    call: &mut Call<'_>,
    sources: &Sources,
    (order, items, range): (Address, Address, std::ops::Range<usize>),
    (y, [n, k, stride]): (Address, [usize; 3]),
) -> Outcome {
    let (number, codes) = (call.number("W"), call.define("W").and_then(Units::named));
    let padded = [n.next_multiple_of(EXPERT_PADDING), k.next_multiple_of(64)];
    let (reads, matrix_bytes) = match (number, codes) {
        (Number::F32, Some(units)) => (Number::Bf16, units.matrix_bytes([n, k])),
        (Number::F32, None) => (number, n * k * number.bytes()),
        (Number::F16 | Number::Bf16, _) => (number, padded[0] * padded[1] * number.bytes()),
    };
    let row_bytes = stride * call.number("Y").bytes();
    for item in range {
        let words = call.words(items.offset(item * ITEM * size_of::<u32>()), ITEM)?;
        let [expert, first, rows] = [words[0], words[1], words[2]].map(|word| word as usize);
        let from = sources.matrices.offset((expert - sources.first_expert) * matrix_bytes);
        let matrix = weight(call, from, n, k)?;
        let bias = call.optional(sources.bias, (expert + 1) * n)?;
        let bias = bias.as_ref().map(|bias| &bias[expert * n..]);
        for place in first..first + rows {
            let row = sources.x_rows.map_or(Ok(place as u32), |rows| call.word(rows, place))? as usize;
            let lies = if call.has("X") { call.number("X") } else { reads };
            let x = call.memory.numbers(call.entry, lies, (sources.x.offset(row * k * lies.bytes()), k))?;
            let x = Numbers::new(k, reads.decode(&reads.encode(&x)));
            let made = gated(call, linear::linear(&x, &matrix, bias));
            let to = call.word(order, place)? as usize;
            call.put("Y", y.offset(to * row_bytes), &made.data)?;
        }
    }
    Ok(())
}

pub(super) fn combine_experts(call: &mut Call<'_>) -> Outcome {
    let ([y, rows, weights, shared], [tokens, width, top_k]) = (call.addresses()?, call.sizes()?);
    let (rows, weights) =
        (call.matrix(rows, tokens * top_k, width)?, call.matrix(weights, tokens * top_k, 1)?);
    let shared = call.optional(shared, tokens * width)?.map(|shared| Numbers::new(width, shared));
    let made = experts::combine_experts(&rows, &weights, shared.as_ref(), tokens);
    call.put_floats(y, &made.data)
}
