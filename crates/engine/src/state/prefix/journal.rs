//! What the prefix cache gained and lost, for those who follow it: whole pages, each named by a hash of all tokens up to its
//! end.
//!
//! A tree keeps one only where somebody follows. Knows no page: where the keys and values of a run of tokens lie is nobody
//! else's business.

use super::NodeId;
use gannet_ops::TokenId;
use std::collections::HashMap;

/// A change of what a prefix cache knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixEvent {
    /// A page of tokens is known now.
    Stored {
        /// A hash of its tokens, of all before them, and of the salt: FNV-1a of 64 bits (Fowler, Noll, Vo).
        hash: u64,
        /// The hash of the page before; none for the first.
        parent: Option<u64>,
        /// Its tokens.
        tokens: Vec<TokenId>,
        /// The salt of its requests; 0 where they have none.
        salt: u64,
    },
    /// A page of tokens isn't known any more.
    Removed {
        /// Its hash.
        hash: u64,
    },
}

/// Hears of changes, in their order, on the engine's thread; it must not wait.
pub type PrefixFollower = Box<dyn FnMut(&[PrefixEvent]) + Send>;

/// What was told of each node, and what is still to be told.
#[derive(Default)]
pub(super) struct Journal {
    told: HashMap<NodeId, Told>,
    pub(super) events: Vec<PrefixEvent>,
}

#[derive(Clone, Copy)]
struct Told {
    hash: u64,
    salt: u64,
}

impl Journal {
    /// A node has a whole page of tokens. `salt` is that of its tree where no page stands before it.
    pub(super) fn stored(&mut self, id: NodeId, parent: NodeId, salt: u64, tokens: &[TokenId]) {
        let before = self.told.get(&parent).copied();
        let salt = before.map_or(salt, |before| before.salt);
        let parent = before.map(|before| before.hash);
        let hash = hash(parent.unwrap_or(salt), tokens);
        if self.told.insert(id, Told { hash, salt }).is_none() {
            self.events.push(PrefixEvent::Stored { hash, parent, tokens: tokens.to_vec(), salt });
        }
    }

    /// A node has left the tree.
    pub(super) fn removed(&mut self, id: NodeId) {
        if let Some(Told { hash, .. }) = self.told.remove(&id) {
            self.events.push(PrefixEvent::Removed { hash });
        }
    }
}

fn hash(before: u64, tokens: &[TokenId]) -> u64 {
    let bytes = before.to_le_bytes().into_iter().chain(tokens.iter().flat_map(|token| token.0.to_le_bytes()));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
