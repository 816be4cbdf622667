//! The formats without blocks, one number at a time, and the pair of 4-bit floats that shares a byte.

use super::small_floats::{e2m1_to_f32, e4m3_to_f32, e5m2_to_f32, e8m0_to_f32};
use super::{BlockFormat, f16_to_f32, part};
use crate::Format;

/// Defines the type of a format by the values that its bytes stand for.
macro_rules! plain {
    ($name:ident, $bytes:ident => $values:expr) => {
        #[doc = concat!("[`Format::", stringify!($name), "`] as a type.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl BlockFormat for $name {
            const FORMAT: Format = Format::$name;

            #[inline(always)]
            fn decode($bytes: &[u8], out: &mut [f32]) {
                out.copy_from_slice(&$values);
            }
        }
    };
}

plain!(F32, bytes => [f32::from_le_bytes(*part(bytes, 0))]);
plain!(F16, bytes => [f16_to_f32(u16::from_le_bytes(*part(bytes, 0)))]);
plain!(Bf16, bytes => [f32::from_bits(u32::from(u16::from_le_bytes(*part(bytes, 0))) << 16)]);
plain!(F64, bytes => [f64::from_le_bytes(*part(bytes, 0)) as f32]);
plain!(U8, bytes => [f32::from(bytes[0])]);
plain!(I8, bytes => [f32::from(bytes[0] as i8)]);
plain!(I16, bytes => [f32::from(i16::from_le_bytes(*part(bytes, 0)))]);
plain!(I32, bytes => [i32::from_le_bytes(*part(bytes, 0)) as f32]);
plain!(I64, bytes => [i64::from_le_bytes(*part(bytes, 0)) as f32]);
plain!(F8E4M3, bytes => [e4m3_to_f32(bytes[0])]);
plain!(F8E5M2, bytes => [e5m2_to_f32(bytes[0])]);
plain!(F8E8M0, bytes => [e8m0_to_f32(bytes[0])]);
plain!(F4E2M1, bytes => [e2m1_to_f32(bytes[0]), e2m1_to_f32(bytes[0] >> 4)]);
