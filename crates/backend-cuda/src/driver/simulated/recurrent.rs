//! The kernels of a gated delta net: norms and gates, and the two that change what a sequence keeps.
//!
//! The matrices of a unit lie as the reference has them, `[value_heads][key_dim][value_dim]`; only the kernel itself looks at them.

use super::super::Address;
use super::kernels::{Call, Outcome};
use crate::error::CudaError;
use crate::units::NO_UNIT;
use gannet_ops::reference::recurrent::{self, DeltaInputs};
use gannet_ops::reference::{gates, norms};
use gannet_ops::{DeltaLayout, DeltaRule, HeadMap, StateId};

pub(super) fn l2_norm(call: &mut Call<'_>) -> Outcome {
    let ([y, x], [rows, heads, dim]) = (call.addresses()?, call.sizes()?);
    let (epsilon, scale) = (call.f32()?, call.f32()?);
    let x = call.matrix(x, rows, heads * dim)?;
    call.put_floats(y, &norms::l2_norm(&x, heads, epsilon, scale).data)
}

pub(super) fn gated_norm(call: &mut Call<'_>) -> Outcome {
    let ([y, x, z, weight], [rows, heads, dim], epsilon) = (call.addresses()?, call.sizes()?, call.f32()?);
    let [x, z] = [call.matrix(x, rows, heads * dim)?, call.matrix(z, rows, heads * dim)?];
    let weight = call.floats(weight, dim)?;
    call.put("Y", y, &norms::gated_norm(&x, &z, &weight, epsilon).data)
}

pub(super) fn decay_gate(call: &mut Call<'_>) -> Outcome {
    let ([y, a, decay, bias], count, heads) = (call.addresses()?, call.u64()?, call.u32()?);
    let a = call.matrix(a, count / heads, heads)?;
    let [decay, bias] = [call.floats(decay, heads)?, call.floats(bias, heads)?];
    call.put_floats(y, &gates::decay_gate(&a, &decay, &bias).data)
}

/// A sequence's rows, and the unit that they start from.
struct Run {
    first: usize,
    count: usize,
    unit: u32,
}

fn run(call: &Call<'_>, runs: Address, sequence: usize) -> Result<Run, CudaError> {
    let words = call.words(runs.offset(sequence * 4 * size_of::<u32>()), 4)?;
    Ok(Run { first: words[0] as usize, count: words[1] as usize, unit: words[2] })
}

/// The state of a layer in a unit; zeros where that is none.
fn state(
    call: &Call<'_>,
    (base, unit_elements): (Address, usize),
    unit: u32,
    elements: usize,
) -> Result<Vec<f32>, CudaError> {
    if unit == NO_UNIT {
        return Ok(vec![0.0; elements]);
    }
    call.floats(unit_at((base, unit_elements), unit), elements)
}

fn unit_at((base, unit_elements): (Address, usize), unit: u32) -> Address {
    base.offset(unit as usize * unit_elements * size_of::<f32>())
}

pub(super) fn causal_conv(call: &mut Call<'_>) -> Outcome {
    let [y, x, weight, windows, runs, row_sequence, row_unit] = call.addresses()?;
    let (unit_elements, [rows, channels, taps]) = (call.u64()?, call.sizes()?);
    let (x, weight) = (call.matrix(x, rows, channels)?, call.floats(weight, channels * taps)?);
    let sequences = call.words(row_sequence, rows)?;
    let units = (windows, unit_elements);
    let mut row = 0;
    while row < rows {
        let Run { first, count, unit } = run(call, runs, sequences[row] as usize)?;
        if row.wrapping_sub(first) >= count {
            row += 1;
            continue;
        }
        let mut window = state(call, units, unit, (taps - 1) * channels)?;
        for row in first..first + count {
            let (made, _) = recurrent::causal_conv(x.row(row), &weight, &mut window);
            call.put_floats(y.offset(row * channels * size_of::<f32>()), &made)?;
            keep(call, units, (row_unit, row), &window)?;
        }
        row = first + count;
    }
    Ok(())
}

pub(super) fn gated_delta_rule(call: &mut Call<'_>) -> Outcome {
    let [y, q, k, v, g, b, matrices, runs, row_unit] = call.addresses()?;
    let (unit_elements, [key_heads, value_heads, key_dim, value_dim, grouped]) = (call.u64()?, call.sizes()?);
    let head_map = if grouped == 1 { HeadMap::Grouped } else { HeadMap::Tiled };
    let rule = DeltaRule { state: StateId(0), key_heads, head_map };
    let (sizes, width) = (DeltaLayout { value_heads, key_dim, value_dim }, value_heads * value_dim);
    let units = (matrices, unit_elements);
    for sequence in 0..call.grid()[0] as usize {
        let Run { first, count, unit } = run(call, runs, sequence)?;
        let of = |address: Address, width: usize| {
            call.matrix(address.offset(first * width * size_of::<f32>()), count, width)
        };
        let [q, k] = [of(q, key_heads * key_dim)?, of(k, key_heads * key_dim)?];
        let [v, g, b] = [of(v, width)?, of(g, value_heads)?, of(b, value_heads)?];
        let inputs = DeltaInputs { q: &q, k: &k, v: &v, g: &g, b: &b };
        let mut state = state(call, units, unit, value_heads * key_dim * value_dim)?;
        for row in 0..count {
            let (made, _) = recurrent::gated_delta_rule(&inputs, row, &rule, sizes, &mut state);
            call.put_floats(y.offset((first + row) * width * size_of::<f32>()), &made)?;
            keep(call, units, (row_unit, first + row), &state)?;
        }
    }
    Ok(())
}

/// Writes the state after a row into the unit that takes it, where there is one.
fn keep(
    call: &mut Call<'_>,
    units: (Address, usize),
    (row_unit, row): (Address, usize),
    state: &[f32],
) -> Outcome {
    match call.word(row_unit, row)? {
        NO_UNIT => Ok(()),
        unit => call.put_floats(unit_at(units, unit), state),
    }
}
