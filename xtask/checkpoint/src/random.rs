//! Random numbers that are the same everywhere: a stream for each piece of each tensor, by name and place.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, 2019), its state seeded by splitmix64.

/// A stream of random numbers.
pub(super) struct Random([u64; 4]);

impl Random {
    /// The stream of piece `piece` of what is called `name`.
    pub(super) fn new(seed: u64, name: &str, piece: u64) -> Self {
        let mut state = split_mix(&mut { seed }) ^ hash(name);
        state = split_mix(&mut state) ^ piece;
        Self(std::array::from_fn(|_| split_mix(&mut state)))
    }

    #[inline(always)]
    pub(super) fn bits(&mut self) -> u64 {
        let state = &mut self.0;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// From a distribution close to the normal one: the sum of four uniform numbers, with mean 0 and deviation 1.
    #[inline(always)]
    pub(super) fn normal(&mut self) -> f32 {
        /// Four numbers of 16 bits have this mean, and a variance of (2^32 - 1) / 3.
        const MEAN: i32 = 4 * 65535 / 2;
        const DEVIATION: f32 = 37837.23;
        let bits = self.bits();
        let pairs = (bits & 0x0000_ffff_0000_ffff) + (bits >> 16 & 0x0000_ffff_0000_ffff);
        let sum = (pairs as u32 as i32) + ((pairs >> 32) as i32);
        (sum - MEAN) as f32 * (1.0 / DEVIATION)
    }

    /// Between 0 and 1.
    pub(super) fn fraction(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
