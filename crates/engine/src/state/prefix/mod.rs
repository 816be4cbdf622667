//! The prefix cache: a radix tree over token ids whose nodes own the pages, and some recurrent snapshots, of what was
//! computed.
//!
//! A node is one page: up to 64 tokens that stand at the same place in every sequence that shares them. There is memory for
//! as many nodes as there can be pages, taken at the start: whoever decodes adds a node with each page that fills.
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
//! 7. No node was used later than its parent.
//!
//! Trees of different keys share nothing. Knows no request and no device: what leaves the tree is returned.

mod evict;
mod journal;
mod publish;
mod recency;
mod walk;

pub use journal::{PrefixEvent, PrefixFollower};
pub(crate) use publish::Published;
pub(crate) use walk::{Walk, first_page};

use crate::NumericsId;
use gannet_ops::{PAGE_TOKENS, PageId, PageLifetime, SnapshotId, TokenId};
use journal::Journal;
use recency::Recency;
use std::collections::HashMap;

/// Nodes for each page of a window, where no group keeps whole sequences: nodes on the way to one whose window is there have
/// no page themselves.
const NODES_PER_WINDOW_PAGE: usize = 16;

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
    /// `[node][group]`.
    pages: Vec<Option<PageId>>,
    unused: Vec<NodeId>,
    /// An empty node for each key that has any others.
    roots: HashMap<PrefixKey, NodeId>,
    /// The first of a node's children whose tokens begin with one; the others follow as siblings.
    children: HashMap<(NodeId, TokenId), NodeId>,
    /// All nodes but roots.
    used: Recency,
    /// For each group the nodes that have a page of it.
    holding: Vec<Recency>,
    /// Where somebody follows.
    journal: Option<Journal>,
    /// Memory for the nodes that a sequence passes.
    path: Vec<NodeId>,
    /// Memory of checks.
    counted: Vec<usize>,
    nodes_max: usize,
    snapshots: usize,
    /// Ascends with each use of a snapshot.
    now: u64,
}

/// Up to a page of tokens.
struct Node {
    /// None for roots, and for nodes that are not in use.
    parent: Option<NodeId>,
    /// The next child of the parent whose tokens begin with the same one.
    sibling: Option<NodeId>,
    children: usize,
    tokens: [TokenId; PAGE_TOKENS],
    /// Of these, how many there are.
    length: usize,
    /// Tokens whose keys its open pages have.
    open_tokens: usize,
    /// Whether the window of a place where others are likely to go on lies in its pages.
    is_anchor: bool,
    /// By offset, ascending.
    snapshots: Vec<Snapshot>,
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
    /// A tree over groups of these lifetimes and numbers of pages.
    pub(crate) fn new(groups: impl IntoIterator<Item = (PageLifetime, usize)>) -> Self {
        let (lifetimes, totals): (Vec<PageLifetime>, Vec<usize>) = groups.into_iter().unzip();
        let full = lifetimes.iter().zip(&totals).filter(|(lifetime, _)| **lifetime == PageLifetime::Full);
        let largest = totals.iter().max().copied().unwrap_or(0);
        let nodes_max =
            full.map(|(_, total)| *total).min().unwrap_or(largest.saturating_mul(NODES_PER_WINDOW_PAGE));
        // A root has at least one other node below it.
        let room = 2 * nodes_max + 1;
        Self {
            nodes: Vec::with_capacity(room),
            pages: Vec::with_capacity(room * lifetimes.len()),
            unused: Vec::with_capacity(room),
            roots: HashMap::new(),
            // With as much room again, entries that were removed never make the map grow.
            children: HashMap::with_capacity(2 * nodes_max + 2),
            used: Recency::with_room(room),
            holding: lifetimes.iter().map(|_| Recency::with_room(room)).collect(),
            journal: None,
            path: Vec::with_capacity(nodes_max),
            counted: Vec::with_capacity(room),
            nodes_max,
            snapshots: 0,
            now: 0,
            lifetimes,
        }
    }

    /// Notes changes from now on, while there is nothing yet.
    pub(crate) fn follow(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// Takes what was noted.
    pub(crate) fn take_events(&mut self, events: &mut Vec<PrefixEvent>) {
        events.extend(self.journal.iter_mut().flat_map(|journal| journal.events.drain(..)));
    }

    /// Notes that a node has a whole page, where it has.
    fn note(&mut self, id: NodeId) {
        let Some(journal) = &mut self.journal else { return };
        let node = &self.nodes[id.0 as usize];
        if node.length == PAGE_TOKENS {
            let parent = node.parent.expect("a node with tokens is no root");
            let key = self.roots.iter().find(|(_, root)| **root == parent);
            journal.stored(id, parent, key.map_or(0, |(key, _)| key.salt), node.tokens());
        }
    }

    /// Pages of a group that the tree owns.
    pub(crate) fn pages(&self, group: usize) -> impl Iterator<Item = PageId> + '_ {
        self.pages.iter().skip(group).step_by(self.lifetimes.len()).copied().flatten()
    }

    /// Snapshots that the tree owns.
    pub(crate) fn snapshots(&self) -> usize {
        self.snapshots
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// A node's page of each group.
    fn pages_of(&self, id: NodeId) -> &[Option<PageId>] {
        let groups = self.lifetimes.len();
        &self.pages[id.0 as usize * groups..][..groups]
    }

    fn page_of(&self, id: NodeId, group: usize) -> Option<PageId> {
        self.pages_of(id)[group]
    }

    /// Gives a node another page of a group, or none; a node that had none is listed as used last.
    fn set_page(&mut self, id: NodeId, group: usize, page: Option<PageId>) {
        let place = id.0 as usize * self.lifetimes.len() + group;
        let old = std::mem::replace(&mut self.pages[place], page);
        match (old, page) {
            (None, Some(_)) => self.holding[group].touch(id),
            (Some(_), None) => self.holding[group].remove(id),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Nodes that are no roots.
    fn count(&self) -> usize {
        self.nodes.len() - self.unused.len() - self.roots.len()
    }

    fn root(&mut self, key: PrefixKey) -> NodeId {
        if let Some(root) = self.roots.get(&key) {
            return *root;
        }
        let root = self.add(None, &[]);
        self.roots.insert(key, root);
        root
    }

    fn add(&mut self, parent: Option<NodeId>, tokens: &[TokenId]) -> NodeId {
        let id = self.unused.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.pages.extend(std::iter::repeat_n(None, self.lifetimes.len()));
            NodeId(self.nodes.len() as u32 - 1)
        });
        let node = self.node_mut(id);
        node.parent = parent;
        node.set_tokens(tokens);
        id
    }

    /// Children of a node whose tokens begin with one.
    fn children_with(&self, parent: NodeId, first: TokenId) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.children.get(&(parent, first)).copied();
        std::iter::successors(first, |id| self.node(*id).sibling)
    }

    /// Makes the nodes of a path the most recently used ones. Where whole sequences are kept the ends go first, so a node
    /// is never used later than its parent; in a window the beginnings go first, since what comes later is read longer.
    fn touch(&mut self, path: &[NodeId]) {
        path.iter().rev().for_each(|id| self.used.touch(*id));
        for group in 0..self.lifetimes.len() {
            for id in path {
                if self.page_of(*id, group).is_some() {
                    self.holding[group].touch(*id);
                }
            }
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: None,
            sibling: None,
            children: 0,
            tokens: [TokenId(0); PAGE_TOKENS],
            length: 0,
            open_tokens: 0,
            is_anchor: false,
            snapshots: Vec::new(),
        }
    }
}

impl Node {
    fn tokens(&self) -> &[TokenId] {
        &self.tokens[..self.length]
    }

    fn set_tokens(&mut self, tokens: &[TokenId]) {
        self.tokens[..tokens.len()].copy_from_slice(tokens);
        self.length = tokens.len();
    }

    fn is_leaf(&self) -> bool {
        self.children == 0
    }
}

/// Tokens that two runs begin with.
fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
