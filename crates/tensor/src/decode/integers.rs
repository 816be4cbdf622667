//! Integers as they are: indices and codes that single precision would round.

use crate::Format;

/// The elements of an integer format, or `None` where the format is another. `bytes` is a whole number of elements;
/// what is left over is not read.
pub fn integers(format: Format, bytes: &[u8]) -> Option<Vec<i64>> {
    if !format.is_integer() {
        return None;
    }
    let above = 64 - 8 * format.block_bytes();
    let number = |bytes: &[u8]| {
        let word = bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        // Shifted up and down again, which repeats the sign.
        if format == Format::U8 { word as i64 } else { (word << above) as i64 >> above }
    };
    Some(bytes.chunks_exact(format.block_bytes()).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_sign_and_every_bit() {
        let check = |format, bytes: &[u8], expect: &[i64]| {
            assert_eq!(integers(format, bytes).as_deref(), Some(expect), "{format}");
        };
        check(Format::U8, &[0, 127, 255], &[0, 127, 255]);
        check(Format::I8, &[0, 127, 255], &[0, 127, -1]);
        check(Format::I16, &[0, 128, 255, 127], &[-32768, 32767]);
        check(Format::I32, &[1, 0, 0, 1, 254, 255, 255, 255], &[(1 << 24) + 1, -2]);
        let wide = [i64::MIN, i64::MAX, -3];
        check(Format::I64, &wide.map(i64::to_le_bytes).concat(), &wide);
        assert_eq!(integers(Format::F32, &[0; 4]), None);
    }
}
