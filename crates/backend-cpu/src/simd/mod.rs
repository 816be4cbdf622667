//! One instruction set at run time: sixteen float lanes, and kernels that are compiled once a level.
//!
//! A kernel is a struct with the slices that it works on and a `run` over some [`Lanes`]. [`Isa::run`] calls
//! it inside a function that enables the level's instructions, so everything in it that is always inlined
//! becomes code of that level: the lanes' own operations, the decoders of `tensor`, the functions of
//! `ops::math` and plain loops.
//!
//! Invariants: [`Lanes`] of every level do the same roundings in the same order, so a kernel gives the same
//! bits at every level. An [`Isa`] exists only for a level that this processor has.
//!
//! Knows no operation. All vector intrinsics of the crate are below this module.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dots;
mod elements;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pairs;
pub(crate) mod peaks;
mod scalar;

pub(crate) use dots::{CodeKernel, Dots, REGISTER, half_power};
pub(crate) use elements::{Bf16, Code, Element, F16, Stored, nearest_bf16};
pub(crate) use pairs::{PairKernel, Pairs};

use gannet_ops::numerics::LANES;
use std::fmt;

/// A set of vector instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IsaLevel {
    /// What every processor of the architecture has.
    Scalar,
    /// 64-bit Arm's vectors of four floats.
    Neon,
    /// The same with dot products of bytes.
    NeonDots,
    /// AVX2 with fused multiply-add and half-precision conversion.
    Avx2,
    /// The same with dot products of bytes.
    AvxVnni,
    /// AVX-512 with the extensions F, BW, DQ and VL.
    Avx512,
    /// The same with dot products of bytes.
    Avx512Vnni,
    /// The same with products of pairs of bf16 numbers.
    Avx512Bf16,
}

impl IsaLevel {
    /// Every level, slowest first.
    pub const ALL: [IsaLevel; 8] = [
        IsaLevel::Scalar,
        IsaLevel::Neon,
        IsaLevel::NeonDots,
        IsaLevel::Avx2,
        IsaLevel::AvxVnni,
        IsaLevel::Avx512,
        IsaLevel::Avx512Vnni,
        IsaLevel::Avx512Bf16,
    ];

    /// The levels that this processor has, slowest first.
    pub fn available() -> impl Iterator<Item = IsaLevel> {
        IsaLevel::ALL.into_iter().filter(|level| level.is_available())
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            IsaLevel::Scalar => true,
            IsaLevel::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "aarch64")]
            IsaLevel::NeonDots => dots::neon::has_dots(),
            #[cfg(not(target_arch = "aarch64"))]
            IsaLevel::NeonDots => false,
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx2 => avx2::is_available(),
            #[cfg(target_arch = "x86_64")]
            IsaLevel::AvxVnni => avx2::is_available() && dots::avx2::has_vnni(),
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx512 => avx2::is_available() && avx512::is_available(),
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx512Vnni => IsaLevel::Avx512.is_available() && dots::avx512::has_vnni(),
            #[cfg(target_arch = "x86_64")]
            IsaLevel::Avx512Bf16 => IsaLevel::Avx512Vnni.is_available() && pairs::native::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            IsaLevel::Avx2
            | IsaLevel::AvxVnni
            | IsaLevel::Avx512
            | IsaLevel::Avx512Vnni
            | IsaLevel::Avx512Bf16 => false,
        }
    }

    /// The name that people choose it by.
    pub const fn name(self) -> &'static str {
        match self {
            IsaLevel::Scalar => "scalar",
            IsaLevel::Neon => "neon",
            IsaLevel::NeonDots => "neon-dots",
            IsaLevel::Avx2 => "avx2",
            IsaLevel::AvxVnni => "avx-vnni",
            IsaLevel::Avx512 => "avx512",
            IsaLevel::Avx512Vnni => "avx512-vnni",
            IsaLevel::Avx512Bf16 => "avx512-bf16",
        }
    }
}

impl fmt::Display for IsaLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A level that this processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Isa {
    // Invariant: `level.is_available()`.
    level: IsaLevel,
}

impl Isa {
    /// The level, where this processor has it.
    pub(crate) fn new(level: IsaLevel) -> Option<Self> {
        level.is_available().then_some(Self { level })
    }

    /// The fastest level that this processor has.
    pub(crate) fn best() -> Self {
        let level = IsaLevel::available().last().expect("every processor has the scalar level");
        Self { level }
    }

    pub(crate) fn level(self) -> IsaLevel {
        self.level
    }

    /// Runs a kernel with this level's instructions.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.level {
            IsaLevel::Scalar => kernel.run::<scalar::F32x16>(),
            #[cfg(target_arch = "aarch64")]
            IsaLevel::Neon | IsaLevel::NeonDots => kernel.run::<neon::F32x16>(),
            #[cfg(not(target_arch = "aarch64"))]
            IsaLevel::Neon | IsaLevel::NeonDots => unreachable!("an Isa exists only for an available level"),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists, so the processor has what `avx2::is_available` checks.
            IsaLevel::Avx2 | IsaLevel::AvxVnni => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of this level exists, so the processor has what `avx512::is_available` checks.
            IsaLevel::Avx512 | IsaLevel::Avx512Vnni | IsaLevel::Avx512Bf16 => unsafe { avx512::run(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            IsaLevel::Avx2
            | IsaLevel::AvxVnni
            | IsaLevel::Avx512
            | IsaLevel::Avx512Vnni
            | IsaLevel::Avx512Bf16 => unreachable!("an Isa exists only for an available level"),
        }
    }
}

/// Bytes of a line of the caches, on most processors.
pub(crate) const LINE: usize = 64;
/// How many bytes ahead of a product its weights are asked for: what several rows with one line of them take is longer than the
/// processor looks ahead by itself.
pub(crate) const AHEAD: usize = 4096;

/// Asks for the line of an address, which need not be one of ours, before it is read. A hint, and none on Arm.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // To the nearest cache.
    prefetch_by::<3>(address);
}

/// As [`prefetch`], not to the nearest cache but to the one behind it.
#[inline(always)]
pub(crate) fn prefetch_far(address: *const u8) {
    prefetch_by::<2>(address);
}

/// With a hint's number on x86-64.
#[inline(always)]
fn prefetch_by<const HINT: i32>(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction; it reads nothing and takes any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Work that is compiled once a level. Implementations mark `run` and all that it calls `#[inline(always)]`.
pub(crate) trait Kernel {
    type Output;

    fn run<L: Lanes>(self) -> Self::Output;
}

/// Sixteen float32 lanes, in as many registers as the level needs. Only code inside [`Isa::run`] may call
/// these.
pub(crate) trait Lanes: Copy {
    /// Whether sixteen of them and the operands of a product fit the registers.
    const HOLDS_SIXTEEN: bool;

    /// The half-precision number with these bits.
    fn half(bits: u16) -> f32;
    fn splat(x: f32) -> Self;
    fn load(from: &[f32; LANES]) -> Self;
    fn load_f16(from: &[u16; LANES]) -> Self;
    fn load_bf16(from: &[u16; LANES]) -> Self;

    /// Pairs of bf16 numbers, the even one of each first: the even ones of all lanes, and the odd ones.
    #[inline(always)]
    fn load_pairs(from: &[u8; REGISTER]) -> (Self, Self) {
        let (mut even, mut odd) = ([0.0; LANES], [0.0; LANES]);
        for (lane, pair) in from.as_chunks().0.iter().enumerate() {
            let pair = u32::from_le_bytes(*pair);
            even[lane] = f32::from_bits(pair << 16);
            odd[lane] = f32::from_bits(pair & 0xffff_0000);
        }
        (Self::load(&even), Self::load(&odd))
    }

    fn store(self, to: &mut [f32; LANES]);

    /// The nearest half-precision numbers, to even where in the middle.
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        for (to, lane) in to.iter_mut().zip(lanes) {
            *to = half::f16::from_f32(lane).to_bits();
        }
    }

    /// The upper halves of the nearest numbers that have no more, to even where in the middle.
    #[inline(always)]
    fn store_bf16(self, to: &mut [u16; LANES]) {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        for (to, lane) in to.iter_mut().zip(lanes) {
            *to = nearest_bf16(lane) as u16;
        }
    }

    fn mul(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
    /// `self * factor + added`, rounded once.
    fn mul_add(self, factor: Self, added: Self) -> Self;
    /// `self` where it is larger, else `other`: also where either is no number.
    fn larger(self, other: Self) -> Self;
    /// The sum in the tree of [`gannet_ops::numerics::fold`].
    fn fold(self) -> f32;
    /// The largest in the tree of [`gannet_ops::numerics::largest`].
    fn largest(self) -> f32;

    /// Lane i becomes the fold of `lanes[i]`.
    #[inline(always)]
    fn fold_each(lanes: [Self; LANES]) -> Self {
        Self::load(&folds(lanes))
    }

    /// Signed bytes as numbers.
    fn from_i8(codes: &[u8; LANES]) -> Self;

    /// `value` of each low half byte.
    fn low_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self;

    /// `value` of each high half byte.
    fn high_nibbles(packed: &[u8; LANES], value: impl Fn(Self) -> Self) -> Self;

    /// Up to sixteen elements; the lanes beyond are zero.
    #[inline(always)]
    fn load_part(from: &[f32]) -> Self {
        let mut lanes = [0.0; LANES];
        lanes[..from.len()].copy_from_slice(from);
        Self::load(&lanes)
    }
}

/// The folds of several lanes.
//
// Loops over lanes are written out here and in kernels: a closure, as `map` takes one, is a function of its
// own without the level's features, and where it isn't inlined each operation in it is a call.
#[inline(always)]
pub(crate) fn folds<L: Lanes, const COUNT: usize>(lanes: [L; COUNT]) -> [f32; COUNT] {
    let mut folds = [0.0; COUNT];
    for place in 0..COUNT {
        folds[place] = lanes[place].fold();
    }
    folds
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_ops::numerics::{fold, largest};

    fn sixteen(seed: u32) -> [f32; LANES] {
        std::array::from_fn(|i| ((seed * 31 + i as u32 * 17) as f32 * 0.37).sin() * 1e3)
    }

    /// Everything that a level's lanes can do, on fixed inputs.
    struct Everything;

    impl Kernel for Everything {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<L: Lanes>(self) -> Vec<f32> {
            let (a, b) = (L::load(&sixteen(1)), L::load(&sixteen(2)));
            let bytes: [u8; LANES] = std::array::from_fn(|i| (i * 37 + 200) as u8);
            let halves: [u16; LANES] = std::array::from_fn(|i| (i * 4099) as u16 & 0x7bff);
            let value = |code: L| code.mul(L::splat(0.3)).add(L::splat(-1.7));
            let results = [
                a.mul(b),
                a.add(b),
                a.mul_add(b, L::splat(0.1)),
                a.larger(b),
                L::splat(f32::NAN).larger(a),
                a.larger(L::splat(f32::NAN)),
                L::fold_each(std::array::from_fn(|i| L::load(&sixteen(i as u32)))),
                L::from_i8(&bytes),
                L::low_nibbles(&bytes, value),
                L::high_nibbles(&bytes, value),
                L::load_f16(&halves),
                L::load_bf16(&halves),
                L::load_part(&sixteen(3)[..5]),
            ];
            let mut out = vec![a.fold(), a.largest()];
            for lanes in results {
                let mut stored = [0.0; LANES];
                lanes.store(&mut stored);
                out.extend(stored);
                let mut halves = [0; LANES];
                lanes.store_f16(&mut halves);
                out.extend(halves.map(f32::from));
                lanes.store_bf16(&mut halves);
                out.extend(halves.map(f32::from));
            }
            out
        }
    }

    #[test]
    fn every_level_gives_the_bits_of_the_scalar_one() {
        let expected: Vec<u32> = Everything.run::<scalar::F32x16>().iter().map(|x| x.to_bits()).collect();
        for level in IsaLevel::available() {
            let isa = Isa::new(level).expect("the level is available");
            let found: Vec<u32> = isa.run(Everything).iter().map(|x| x.to_bits()).collect();
            assert_eq!(found, expected, "{level}");
        }
    }

    #[test]
    fn folds_follow_the_named_tree() {
        for level in IsaLevel::available() {
            let isa = Isa::new(level).expect("the level is available");
            let found = isa.run(Everything);
            assert_eq!(found[..2], [fold(sixteen(1)), largest(sixteen(1))], "{level}");
            for i in 0..LANES {
                assert_eq!(found[2 + 6 * 3 * LANES + i], fold(sixteen(i as u32)), "{level} lane {i}");
            }
        }
    }
}
