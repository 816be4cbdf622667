//! Dot products of codes: unsigned bytes of a matrix with signed bytes of a row, sixteen outputs at once.
//!
//! A register of [`Dots::Bytes`] has four codes of each of sixteen outputs, output after output; a [`Dots::Sums`]
//! has a 32-bit sum of each. [`Isa::run_codes`] compiles a [`CodeKernel`] once a level, as [`Isa::run`] does.
//!
//! Invariant: sums are the exact integers, whatever the level's instructions are, so every level gives the same
//! bits. Those that saturate in 16 bits are used where they can't: a code of [`Dots::dot`] is below 64.
//!
//! Knows no format and no operation.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
pub(super) mod scalar;

use super::{Isa, IsaLevel, Lanes};
use gannet_ops::numerics::LANES;

/// Codes of one register: four of each output.
pub(crate) const REGISTER: usize = 4 * LANES;

/// A level's way to multiply codes. Only code inside [`Isa::run_codes`] may call these.
pub(crate) trait Dots {
    type Floats: Lanes;
    /// Four unsigned codes of each of sixteen outputs.
    type Bytes: Copy;
    /// A 32-bit number for each of sixteen outputs.
    type Sums: Copy;
    /// Rows of the largest tile worth its code: 16 where the codes of 32 columns and the sums of so many fit the
    /// registers, 4 where they don't, 1 where there are none.
    const MOST_ROWS: usize;

    fn load(from: &[u8; REGISTER]) -> Self::Bytes;
    fn store(codes: Self::Bytes, to: &mut [u8; REGISTER]);
    fn low_nibbles(packed: Self::Bytes) -> Self::Bytes;
    fn high_nibbles(packed: Self::Bytes) -> Self::Bytes;
    /// Bits `2 PLACE` and `2 PLACE + 1` of `packed` become bits 4 and 5 over the four of `low`.
    fn with_two_bits<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes;
    /// Bit `PLACE` of `packed` becomes bit 4 over the four of `low`.
    fn with_bit<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes;
    /// The entries of a table that codes below 16 name.
    fn look_up(table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes;

    /// The same sum for each output: `number << SHIFT`.
    fn start<const SHIFT: u32>(number: i32) -> Self::Sums;
    /// Adds the products of codes below 64 with four signed bytes, the first of which is the lowest of `x`.
    fn dot(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums;
    /// What [`Dots::dot_wide`] starts from, for a row whose signed bytes add up to `-minus_sum`.
    fn start_wide(minus_sum: i32) -> Self::Sums;
    /// As [`Dots::dot`], for any code. With [`Dots::start_wide`] before the first, and over all bytes of the row's
    /// sum, the result is the sum of `(code - 128) * x`.
    fn dot_wide(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums;
    /// `256 * sums + start`: what the sums over a first term of a row's codes are beside those over the next one.
    fn next_term(sums: Self::Sums, start: Self::Sums) -> Self::Sums;
    fn floats(sums: Self::Sums) -> Self::Floats;
    /// Unsigned bytes as numbers.
    fn from_u8(bytes: &[u8; LANES]) -> Self::Floats;
    /// `2^(byte - 128)` of each byte: half of what a byte means as an E8M0 scale.
    fn half_powers(bytes: &[u8; LANES]) -> Self::Floats;
}

/// `2^(byte - 128)`.
#[inline(always)]
pub(crate) fn half_power(byte: u8) -> f32 {
    f32::from_bits((u32::from(byte) << 23).max(1 << 22)) * 0.5
}

/// Work on codes that is compiled once a level. Implementations mark `run` and all that it calls
/// `#[inline(always)]`.
pub(crate) trait CodeKernel {
    type Output;

    fn run<D: Dots>(self) -> Self::Output;
}

impl Isa {
    /// Runs a kernel with this level's instructions.
    pub(crate) fn run_codes<K: CodeKernel>(self, kernel: K) -> K::Output {
        match self.level {
            IsaLevel::Scalar => scalar::run(kernel),
            #[cfg(target_arch = "aarch64")]
            IsaLevel::Neon => kernel.run::<neon::Widening>(),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: an `Isa` of this level exists, so the processor has what `neon::has_dots` checks.
            IsaLevel::NeonDots => unsafe { neon::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists, so the processor has what `is_available` of it checks.
            IsaLevel::Avx2 => unsafe { avx2::run_pairs(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            IsaLevel::AvxVnni => unsafe { avx2::run_vnni(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            IsaLevel::Avx512 => unsafe { avx512::run_pairs(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            IsaLevel::Avx512Vnni | IsaLevel::Avx512Bf16 => unsafe { avx512::run_vnni(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            IsaLevel::Avx2
            | IsaLevel::AvxVnni
            | IsaLevel::Avx512
            | IsaLevel::Avx512Vnni
            | IsaLevel::Avx512Bf16 => unreachable!("an Isa exists only for an available level"),
            #[cfg(not(target_arch = "aarch64"))]
            IsaLevel::Neon | IsaLevel::NeonDots => {
                unreachable!("an Isa exists only for an available level")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a level can do, on fixed inputs of the whole range.
    struct Everything;

    fn bytes(seed: u32) -> [u8; REGISTER] {
        std::array::from_fn(|i| ((seed + i as u32).wrapping_mul(2_654_435_761) >> 24) as u8)
    }

    impl CodeKernel for Everything {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<D: Dots>(self) -> Vec<f32> {
            let packed = D::load(&bytes(1));
            let low = D::low_nibbles(packed);
            let plane = D::load(&bytes(2));
            let narrow = [
                low,
                D::high_nibbles(packed),
                D::with_two_bits::<0>(low, plane),
                D::with_two_bits::<1>(low, plane),
                D::with_two_bits::<2>(low, plane),
                D::with_two_bits::<3>(low, plane),
                D::with_bit::<0>(low, plane),
                D::with_bit::<3>(low, plane),
                D::with_bit::<4>(low, plane),
                D::with_bit::<7>(low, plane),
            ];
            let mut out = Vec::new();
            let mut put = |lanes: D::Floats| {
                let mut stored = [0.0; LANES];
                lanes.store(&mut stored);
                out.extend(stored);
            };
            let x = [i32::from_le_bytes([127, 0x81, 3, 0xfa]), i32::from_le_bytes([127; 4])];
            for codes in narrow {
                for x in x {
                    let sums = D::dot(D::start::<3>(-5), codes, x);
                    put(D::floats(sums));
                    put(D::floats(D::next_term(sums, D::start::<0>(-7))));
                }
            }
            let wide = [packed, D::load(&[255; REGISTER]), D::load(&[0; REGISTER])];
            let table = *bytes(7).first_chunk().expect("a table is shorter");
            for codes in [wide[0], wide[1], wide[2], D::look_up(&table, low)] {
                for x in x {
                    let minus_sum = -x.to_le_bytes().iter().map(|byte| i32::from(*byte as i8)).sum::<i32>();
                    put(D::floats(D::dot_wide(D::start_wide(minus_sum), codes, x)));
                }
            }
            let sixteen = *bytes(3).first_chunk().expect("sixteen are fewer");
            put(D::from_u8(&sixteen));
            put(D::half_powers(&std::array::from_fn(|i| [0, 1, 2, 127, 128, 254][i % 6])));
            let mut stored = [0; REGISTER];
            D::store(packed, &mut stored);
            out.extend(stored.map(f32::from));
            out
        }
    }

    #[test]
    fn every_level_gives_the_numbers_of_the_scalar_one() {
        let expected = Everything.run::<scalar::Plain>();
        for level in IsaLevel::available() {
            let isa = Isa::new(level).expect("the level is available");
            assert_eq!(isa.run_codes(Everything), expected, "{level}");
        }
    }
}
