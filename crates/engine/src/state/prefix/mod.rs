//! The prefix cache: a radix tree over token ids whose nodes own the pages, and some recurrent snapshots, of what was
//! computed.
//!
//! A node is one page: up to 64 tokens that stand at the same place in every sequence that shares them.
//!
//! Invariants:
//! 1. A node with fewer tokens than a page has no children.
//! 2. Of two siblings, neither's tokens begin with the other's.
//! 3. A node has a page in every group of full lifetime; in a window's group its page may have been evicted.
//! 4. The first tokens of a page that a node owns never change, though a sequence may still write behind them; so
//!    whoever needs a part of a page copies it.
//! 5. Its open pages, which have the keys of the node's first tokens unquantised, may be missing or hold fewer tokens.
//!    A full node has them only for the sake of snapshots and branches inside, and loses them first.
//! 6. A snapshot at offset n is the recurrent state after exactly n tokens of its node.
//!
//! Trees of different keys share nothing. Knows no request and no device: what leaves the tree is returned.

mod evict;
mod publish;
mod walk;

pub(crate) use walk::{Walk, first_page};

use crate::NumericsId;
use evict::EvictionOrder;
use gannet_ops::{PageId, PageLifetime, SnapshotId, TokenId};
use std::collections::HashMap;

/// What computed state must have in common beside its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PrefixKey {
    pub(crate) numerics: NumericsId,
    /// Requests of different salts are kept apart, such as those of tenants.
    pub(crate) salt: u64,
}

/// A node's place in [`PrefixTree::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(u32);

/// The tree.
pub(crate) struct PrefixTree {
    lifetimes: Vec<PageLifetime>,
    nodes: Vec<Node>,
    unused: Vec<NodeId>,
    /// An empty node for each key.
    roots: HashMap<PrefixKey, NodeId>,
    order: EvictionOrder,
    /// Ascends with each use.
    now: u64,
}

/// Up to a page of tokens.
#[derive(Default)]
struct Node {
    /// None for roots, and for nodes that are not in use.
    parent: Option<NodeId>,
    /// By first token.
    children: HashMap<TokenId, Vec<NodeId>>,
    tokens: Vec<TokenId>,
    /// A page a group.
    pages: Vec<Option<PageId>>,
    /// Tokens whose keys its open pages have.
    open_tokens: usize,
    /// By offset, ascending.
    snapshots: Vec<Snapshot>,
    last_used: u64,
}

/// A recurrent state after so many tokens of a node.
#[derive(Clone, Copy)]
struct Snapshot {
    offset: usize,
    id: SnapshotId,
    last_used: u64,
}

/// What the tree no longer holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Pages by group.
    pub(crate) pages: Vec<(usize, PageId)>,
    pub(crate) snapshots: Vec<SnapshotId>,
}

impl PrefixTree {
    pub(crate) fn new(lifetimes: Vec<PageLifetime>) -> Self {
        let order = EvictionOrder::new(lifetimes.len());
        Self { lifetimes, nodes: Vec::new(), unused: Vec::new(), roots: HashMap::new(), order, now: 0 }
    }

    /// Pages of a group that the tree owns.
    pub(crate) fn pages(&self, group: usize) -> impl Iterator<Item = PageId> + '_ {
        self.nodes.iter().filter_map(move |node| node.pages.get(group).copied().flatten())
    }

    /// Snapshots that the tree owns.
    pub(crate) fn snapshots(&self) -> usize {
        self.nodes.iter().map(|node| node.snapshots.len()).sum()
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    fn root(&mut self, key: PrefixKey) -> NodeId {
        if let Some(root) = self.roots.get(&key) {
            return *root;
        }
        let root = self.add(Node::default());
        self.roots.insert(key, root);
        root
    }

    fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.unused.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Makes a node the most recently used one.
    fn touch(&mut self, id: NodeId) {
        self.now += 1;
        self.order.remove(id, &self.nodes[id.0 as usize]);
        self.node_mut(id).last_used = self.now;
        self.order.insert(id, &self.nodes[id.0 as usize]);
    }

    /// Changes a node in a way that may change its place in the order of eviction.
    fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        self.order.remove(id, &self.nodes[id.0 as usize]);
        change(&mut self.nodes[id.0 as usize]);
        self.order.insert(id, &self.nodes[id.0 as usize]);
    }
}

impl Node {
    fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }
}

/// Tokens that two runs begin with.
fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
