//! The precompiled map of characters that SentencePiece models normalise text with, checked before it is used.
//!
//! The map is a little-endian `u32` (the trie's length in bytes), the trie as a double array of `u32` units (Darts-clone's
//! layout), and UTF-8 texts, each ended by a zero byte. A unit holds a label in bits 0 to 7, "has a value" in bit 8, and
//! an offset in bits 10 to 30, shifted by 8 where bit 9 is set; a value is 31 bits, the place of a text.
//!
//! The tokenizers library follows offsets and values without looking, and panics where they lead nowhere. So every state
//! that some text can reach is visited here once: each of its 255 ways on must stay inside the array, each value must
//! be the beginning of a text. The array is rounded up to whole blocks of 256, so that only offsets can lead out of it.
//!
//! Knows no JSON and no normaliser.

use crate::error::TextError;

/// Largest map; those of the public models have 250,000 bytes.
pub(crate) const MAX_CHARSMAP_BYTES: usize = 1 << 22;
/// Units of the array that one state's ways on lie in.
const BLOCK: usize = 256;

/// The map in a form that is safe to follow, or what is wrong with it.
pub(crate) fn checked(map: &[u8]) -> Result<Vec<u8>, TextError> {
    if map.len() > MAX_CHARSMAP_BYTES {
        let (found, limit) = (map.len(), MAX_CHARSMAP_BYTES);
        return Err(TextError::TooLarge { what: "the precompiled map's length in bytes", found, limit });
    }
    let damaged = |reason: &'static str| TextError::DamagedMap { reason };
    let (length, rest) = map.split_first_chunk().ok_or(damaged("it has no length field"))?;
    let trie_bytes = u32::from_le_bytes(*length) as usize;
    let (trie, texts) =
        rest.split_at_checked(trie_bytes).ok_or(damaged("its trie is longer than the map"))?;
    let (units, []) = trie.as_chunks() else {
        return Err(damaged("its trie is no list of 32-bit units"));
    };
    let texts = std::str::from_utf8(texts).map_err(|_| damaged("its texts are no UTF-8"))?;
    let mut units: Vec<u32> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
    if units.is_empty() {
        return Err(damaged("its trie is empty"));
    }
    units.resize(units.len().next_multiple_of(BLOCK), 0);
    visit(&units, texts).map_err(damaged)?;
    let trie_bytes = (units.len() * 4) as u32;
    let units = units.iter().flat_map(|unit| unit.to_le_bytes());
    Ok(trie_bytes.to_le_bytes().into_iter().chain(units).chain(texts.bytes()).collect())
}

/// Walks every path of the trie. `units` is whole blocks.
fn visit(units: &[u32], texts: &str) -> Result<(), &'static str> {
    let mut seen = vec![false; units.len()];
    let mut waiting = vec![offset(units[0])];
    while let Some(state) = waiting.pop() {
        let Some(seen) = seen.get_mut(state) else {
            return Err("its trie leads out of itself");
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        for label in 1..BLOCK {
            let at = state ^ label;
            let unit = units[at];
            if unit & (1 << 31 | 0xFF) != label as u32 {
                continue;
            }
            let next = at ^ offset(unit);
            if unit >> 8 & 1 == 1 {
                let value = units.get(next).ok_or("its trie leads out of itself")? & !(1 << 31);
                if !texts.is_char_boundary(value as usize) {
                    return Err("a value points at no text");
                }
            }
            waiting.push(next);
        }
    }
    Ok(())
}

fn offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & 1 << 9) >> 6)
}
