//! What leaves the tree when memory is short.
//!
//! In a group of full lifetime the least recently used leaf goes, with all its pages and snapshots. In a window's
//! group, and in one of open pages, a page alone can go: those of inner nodes first, since only a hit that ends there needs them, then those of
//! leaves. A snapshot alone goes by its own last use. Nothing goes that wouldn't free what is short.

use super::{Dropped, Node, NodeId, PrefixKey, PrefixTree};
use gannet_ops::{PageId, PageLifetime, SnapshotId, TokenId};
use std::collections::BTreeSet;

/// The candidates, least wanted first.
pub(super) struct EvictionOrder {
    leaves: BTreeSet<(u64, NodeId)>,
    /// For each group the nodes that have a page of it: (is a leaf, last use).
    pages: Vec<BTreeSet<(bool, u64, NodeId)>>,
}

impl EvictionOrder {
    pub(super) fn new(groups: usize) -> Self {
        Self { leaves: BTreeSet::new(), pages: vec![BTreeSet::new(); groups] }
    }

    pub(super) fn insert(&mut self, id: NodeId, node: &Node) {
        if node.is_root() {
            return;
        }
        if node.is_leaf() {
            self.leaves.insert((node.last_used, id));
        }
        for (group, _) in node.pages.iter().enumerate().filter(|(_, page)| page.is_some()) {
            self.pages[group].insert((node.is_leaf(), node.last_used, id));
        }
    }

    pub(super) fn remove(&mut self, id: NodeId, node: &Node) {
        self.leaves.remove(&(node.last_used, id));
        for pages in &mut self.pages {
            pages.remove(&(node.is_leaf(), node.last_used, id));
        }
    }
}

impl PrefixTree {
    /// Gives up a page of a group of which `is_free_without_us`, and whatever must go with it; `None` where there is
    /// no such page.
    pub(crate) fn evict_page(
        &mut self,
        group: usize,
        is_free_without_us: impl Fn(PageId) -> bool,
    ) -> Option<Dropped> {
        match self.lifetimes[group] {
            PageLifetime::Full => {
                let frees = |id: NodeId| self.node(id).pages[group].is_some_and(&is_free_without_us);
                let leaf = self.order.leaves.iter().map(|(_, id)| *id).find(|id| frees(*id))?;
                Some(self.remove(leaf))
            }
            PageLifetime::Window(_) | PageLifetime::Open => {
                let page = |id: NodeId| self.node(id).pages[group].filter(|page| is_free_without_us(*page));
                let mut candidates = self.order.pages[group].iter().map(|(_, _, id)| *id);
                let (id, page) = candidates.find_map(|id| Some((id, page(id)?)))?;
                self.change(id, |node| node.pages[group] = None);
                Some(Dropped { pages: vec![(group, page)], snapshots: Vec::new() })
            }
        }
    }

    /// Gives up the least recently used snapshot.
    pub(crate) fn evict_snapshot(&mut self) -> Option<SnapshotId> {
        let all = self.nodes.iter().enumerate().flat_map(|(place, node)| {
            node.snapshots.iter().map(move |snapshot| (snapshot.last_used, place, snapshot.id))
        });
        let (_, place, id) = all.min_by_key(|(last_used, ..)| *last_used)?;
        self.nodes[place].snapshots.retain(|snapshot| snapshot.id != id);
        Some(id)
    }

    /// Takes out the first node on the way of `tokens` that `is_bad`, by its place and pages, and all behind it.
    pub(crate) fn cut(
        &mut self,
        key: PrefixKey,
        tokens: &[TokenId],
        is_bad: &dyn Fn(usize, &[Option<PageId>]) -> bool,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        let walk = self.walk(key, tokens);
        let bad =
            walk.nodes().iter().enumerate().find(|(place, node)| is_bad(*place, &self.node(**node).pages));
        if let Some((_, &node)) = bad {
            self.remove_branch(node, &mut dropped);
        }
        dropped
    }

    fn remove_branch(&mut self, id: NodeId, dropped: &mut Dropped) {
        for child in self.node(id).children.values().flatten().copied().collect::<Vec<_>>() {
            self.remove_branch(child, dropped);
        }
        let Dropped { pages, snapshots } = self.remove(id);
        dropped.pages.extend(pages);
        dropped.snapshots.extend(snapshots);
    }

    /// Takes a leaf out of the tree.
    fn remove(&mut self, id: NodeId) -> Dropped {
        self.order.remove(id, &self.nodes[id.0 as usize]);
        let node = std::mem::take(self.node_mut(id));
        self.unused.push(id);
        let parent = node.parent.expect("a leaf that can be evicted is no root");
        let first = node.tokens[0];
        self.change(parent, |parent| {
            let siblings = parent.children.get_mut(&first).expect("the parent lists its child");
            siblings.retain(|sibling| *sibling != id);
            if siblings.is_empty() {
                parent.children.remove(&first);
            }
        });
        let pages =
            node.pages.iter().enumerate().filter_map(|(group, page)| Some((group, (*page)?))).collect();
        Dropped { pages, snapshots: node.snapshots.iter().map(|snapshot| snapshot.id).collect() }
    }
}
