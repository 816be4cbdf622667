//! Products of pairs of bf16 numbers, summed in float32: one instruction where a level has it, else two multiply-adds.
//!
//! ```text
//! sum = fma(even weight, even x, fma(odd weight, odd x, sum))      a lane
//! ```
//!
//! A product of two bf16 numbers is exact in float32, so the formula has one rounding a term, and the instruction has
//! the same two in the same order. It takes numbers below the least normal one for zero, which two multiply-adds don't:
//! nothing else tells the levels apart.

use super::{Isa, IsaLevel, Lanes, REGISTER};
use std::marker::PhantomData;

/// Pairs of bf16 numbers in registers: sixteen lanes of weights with one pair of x. Only code inside [`Isa::run_pairs`] may
/// call these.
pub(crate) trait Pairs {
    type Floats: Lanes;
    /// Pairs of sixteen lanes.
    type Weights: Copy;
    /// Rows whose sums have registers.
    const MOST_ROWS: usize;

    /// A pair of each lane, the even one first.
    fn load(from: &[u8; REGISTER]) -> Self::Weights;
    /// Adds the products with a pair whose even number is in the lower half.
    fn add(sums: Self::Floats, weights: Self::Weights, x: u32) -> Self::Floats;
}

/// Work on pairs that is compiled once a level. Implementations mark `run` and all that it calls `#[inline(always)]`.
pub(crate) trait PairKernel {
    type Output;

    fn run<P: Pairs>(self) -> Self::Output;
}

/// Both numbers of each pair as float32.
struct Widened<L>(PhantomData<L>);

impl<L: Lanes> Pairs for Widened<L> {
    type Floats = L;
    type Weights = (L, L);
    const MOST_ROWS: usize = if L::HOLDS_SIXTEEN { 16 } else { 4 };

    #[inline(always)]
    fn load(from: &[u8; REGISTER]) -> (L, L) {
        L::load_pairs(from)
    }

    #[inline(always)]
    fn add(sums: L, (even, odd): (L, L), x: u32) -> L {
        let sums = odd.mul_add(L::splat(f32::from_bits(x & 0xffff_0000)), sums);
        even.mul_add(L::splat(f32::from_bits(x << 16)), sums)
    }
}

impl Isa {
    /// Runs a kernel with this level's instructions.
    pub(crate) fn run_pairs<K: PairKernel>(self, kernel: K) -> K::Output {
        match self.level() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists, so the processor has what `is_available` of it checks.
            IsaLevel::Avx512Bf16 => unsafe { native::run(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            IsaLevel::Avx512Bf16 => unreachable!("an Isa exists only for an available level"),
            IsaLevel::Scalar
            | IsaLevel::Neon
            | IsaLevel::NeonDots
            | IsaLevel::Avx2
            | IsaLevel::AvxVnni
            | IsaLevel::Avx512
            | IsaLevel::Avx512Vnni => self.run(OfLanes(kernel)),
        }
    }
}

/// A kernel on pairs as one on lanes.
struct OfLanes<K>(K);

impl<K: PairKernel> super::Kernel for OfLanes<K> {
    type Output = K::Output;

    #[inline(always)]
    fn run<L: Lanes>(self) -> K::Output {
        self.0.run::<Widened<L>>()
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod native {
    use super::super::avx512::F32x16;
    use super::{PairKernel, Pairs, REGISTER};
    use std::arch::x86_64::*;

    pub(in super::super) fn is_available() -> bool {
        is_x86_feature_detected!("avx512bf16")
    }

    /// Runs a kernel as AVX-512 code with products of bf16 numbers.
    ///
    /// # Safety
    /// The processor has the features named here, which [`is_available`] and those of both levels below check.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
    )]
    pub(super) unsafe fn run<K: PairKernel>(kernel: K) -> K::Output {
        kernel.run::<Registers>()
    }

    struct Registers;

    impl Pairs for Registers {
        type Floats = F32x16;
        type Weights = __m512i;
        const MOST_ROWS: usize = 16;

        #[inline(always)]
        fn load(from: &[u8; REGISTER]) -> __m512i {
            // SAFETY: `Pairs` are used inside of `run` alone, whose caller vouches for AVX-512; an unaligned load of the
            // 64 bytes behind the reference.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        }

        #[inline(always)]
        fn add(sums: F32x16, weights: __m512i, x: u32) -> F32x16 {
            // SAFETY: as in `load`, with the instruction that `run` enables. The types have the same bits.
            unsafe {
                let x: __m512bh = std::mem::transmute(_mm512_set1_epi32(x as i32));
                F32x16::new(_mm512_dpbf16_ps(
                    sums.register(),
                    std::mem::transmute::<__m512i, __m512bh>(weights),
                    x,
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_ops::numerics::LANES;

    struct Sums;

    fn pair(seed: u32) -> u32 {
        let number = |seed: u32| half::bf16::from_f32((seed as f32 * 0.37).sin() * 3.0).to_bits();
        u32::from(number(seed)) | u32::from(number(seed + 1000)) << 16
    }

    impl PairKernel for Sums {
        type Output = [f32; LANES];

        #[inline(always)]
        fn run<P: Pairs>(self) -> [f32; LANES] {
            let mut sums = P::Floats::splat(0.25);
            for step in 0..40 {
                let mut weights = [0; REGISTER];
                for lane in 0..LANES {
                    weights[4 * lane..][..4].copy_from_slice(&pair(step * 16 + lane as u32).to_le_bytes());
                }
                sums = P::add(sums, P::load(&weights), pair(7 * step));
            }
            let mut stored = [0.0; LANES];
            sums.store(&mut stored);
            stored
        }
    }

    #[test]
    fn every_level_gives_the_bits_of_the_formula() {
        let (even, odd) =
            (|pair: u32| f32::from_bits(pair << 16), |pair: u32| f32::from_bits(pair & 0xffff_0000));
        let lane = |lane: u32| {
            (0..40).fold(0.25f32, |sum, step| {
                let (weight, x) = (pair(step * 16 + lane), pair(7 * step));
                even(weight).mul_add(even(x), odd(weight).mul_add(odd(x), sum))
            })
        };
        let expected: [f32; LANES] = std::array::from_fn(|number| lane(number as u32));
        for level in IsaLevel::available() {
            let isa = Isa::new(level).expect("the level is available");
            assert_eq!(isa.run_pairs(Sums), expected, "{level}");
        }
    }
}
