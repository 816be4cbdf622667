//! Changes of a prefix cache as MessagePack: `[seconds, [event, ...], rank]`, each event a map with its kind, in the form of
//! vLLM that llm-d reads.
//!
//! Pages that follow one another are one event. The hash of a page is ours: readers tell pages by their tokens, and use
//! hashes to find a page's parent and to forget it.

use gannet_engine::PrefixEvent;
use gannet_ops::{PAGE_TOKENS, TokenId};
use serde::Serialize;

/// What routers call memory that steps read directly, whatever the device is.
const MEDIUM: &str = "GPU";
/// The one rank of data parallelism.
const RANK: u32 = 0;

/// A change in the form of the wire.
#[derive(Serialize)]
#[serde(tag = "type")]
enum Change {
    BlockStored {
        block_hashes: Vec<u64>,
        parent_block_hash: Option<u64>,
        token_ids: Vec<u32>,
        block_size: usize,
        lora_id: Option<u32>,
        medium: &'static str,
        lora_name: Option<String>,
        /// Of each page what its hash depends on beside its tokens; none where there is nothing.
        extra_keys: Option<Vec<Option<Vec<String>>>>,
        group_idx: u32,
    },
    BlockRemoved {
        block_hashes: Vec<u64>,
        medium: &'static str,
        group_idx: u32,
    },
    AllBlocksCleared {},
}

/// Changes in their order.
pub(super) fn events(seconds: f64, events: &[PrefixEvent]) -> Vec<u8> {
    let mut changes = Vec::new();
    for event in events {
        if !continues(changes.last_mut(), event) {
            changes.push(of(event));
        }
    }
    encoded(seconds, &changes)
}

/// Nothing is known any more.
pub(super) fn cleared(seconds: f64) -> Vec<u8> {
    encoded(seconds, &[Change::AllBlocksCleared {}])
}

fn encoded(seconds: f64, changes: &[Change]) -> Vec<u8> {
    rmp_serde::to_vec_named(&(seconds, changes, RANK)).expect("numbers, texts and lists have a form")
}

/// Adds an event to the change before, where it goes on from it.
fn continues(before: Option<&mut Change>, event: &PrefixEvent) -> bool {
    match (before, event) {
        (
            Some(Change::BlockStored { block_hashes, token_ids, extra_keys, .. }),
            PrefixEvent::Stored { hash, parent: Some(parent), tokens, salt },
        ) if block_hashes.last() == Some(parent) && extra_keys.is_some() == (*salt != 0) => {
            block_hashes.push(*hash);
            token_ids.extend(plain(tokens));
            if let Some(keys) = extra_keys {
                keys.push(Some(vec![named(*salt)]));
            }
            true
        }
        (Some(Change::BlockRemoved { block_hashes, .. }), PrefixEvent::Removed { hash }) => {
            block_hashes.push(*hash);
            true
        }
        _ => false,
    }
}

fn of(event: &PrefixEvent) -> Change {
    match event {
        PrefixEvent::Stored { hash, parent, tokens, salt } => Change::BlockStored {
            block_hashes: vec![*hash],
            parent_block_hash: *parent,
            token_ids: plain(tokens).collect(),
            block_size: PAGE_TOKENS,
            lora_id: None,
            medium: MEDIUM,
            lora_name: None,
            extra_keys: (*salt != 0).then(|| vec![Some(vec![named(*salt)])]),
            group_idx: 0,
        },
        PrefixEvent::Removed { hash } => {
            Change::BlockRemoved { block_hashes: vec![*hash], medium: MEDIUM, group_idx: 0 }
        }
    }
}

fn plain(tokens: &[TokenId]) -> impl Iterator<Item = u32> + '_ {
    tokens.iter().map(|token| token.0)
}

/// A salt as a word: requests of different salts share nothing, and what a salt says is nobody's business.
fn named(salt: u64) -> String {
    format!("{salt:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn stored(hash: u64, parent: Option<u64>, first: u32, salt: u64) -> PrefixEvent {
        PrefixEvent::Stored { hash, parent, tokens: vec![TokenId(first), TokenId(first + 70_000)], salt }
    }

    #[test]
    fn changes_are_the_bytes_that_another_writer_makes() {
        let found = events(
            1.5,
            &[
                stored(1, None, 7, 0),
                stored(u64::MAX, Some(1), 8, 0),
                stored(3, Some(9), 1, 0xab),
                PrefixEvent::Removed { hash: 1 },
                PrefixEvent::Removed { hash: 300 },
            ],
        );
        // `golden.py` beside the tests of this feature wrote these with Python's msgpack.
        assert_eq!(hex(&found), include_str!("../../tests/kv_events/changes.hex").trim());
        assert_eq!(hex(&cleared(0.25)), include_str!("../../tests/kv_events/cleared.hex").trim());
    }
}
