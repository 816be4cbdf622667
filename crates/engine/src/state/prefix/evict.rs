//! What leaves the tree when memory is short.
//!
//! In a group of full lifetime the least recently used leaf goes, with all its pages and snapshots. In a window's group, and
//! in one of open pages, a page alone can go: those of inner nodes first, since only a hit that ends there needs them, then
//! those of leaves, and last those that a place needs where others are likely to go on. A snapshot alone goes by its own
//! last use. Nothing goes that wouldn't free what is short.

use super::{Dropped, NodeId, PrefixKey, PrefixTree};
use gannet_ops::{PageId, PageLifetime, SnapshotId, TokenId};

/// How much a page of a window is wanted; the least wanted goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Inner,
    Leaf,
    Anchor,
}

impl PrefixTree {
    /// Gives up a page of a group of which `is_free_without_us`, and whatever must go with it; false where there is no
    /// such page.
    pub(crate) fn evict_page(
        &mut self,
        group: usize,
        is_free_without_us: impl Fn(PageId) -> bool,
        dropped: &mut Dropped,
    ) -> bool {
        match self.lifetimes[group] {
            PageLifetime::Full => {
                let frees = |id: NodeId| self.page_of(id, group).is_some_and(&is_free_without_us);
                let Some(leaf) = self.used.iter().find(|id| self.node(*id).is_leaf() && frees(*id)) else {
                    return false;
                };
                let parent = self.remove(leaf, dropped);
                self.forget_empty_root(parent);
                true
            }
            PageLifetime::Window(_) | PageLifetime::Open => {
                let Some((id, page)) = self.least_wanted(group, is_free_without_us) else { return false };
                self.set_page(id, group, None);
                self.node_mut(id).is_anchor &= self.lifetimes[group] == PageLifetime::Open;
                dropped.pages.push((group, page));
                true
            }
        }
    }

    /// Of the pages of a group that are free without us, the one that is least likely to be read again.
    fn least_wanted(
        &self,
        group: usize,
        is_free_without_us: impl Fn(PageId) -> bool,
    ) -> Option<(NodeId, PageId)> {
        let mut least: Option<(Wanted, NodeId, PageId)> = None;
        for id in self.holding[group].iter() {
            let page = self.page_of(id, group).expect("a listed node has a page");
            let wanted = self.wanted(id);
            if least.is_none_or(|(known, ..)| wanted < known) && is_free_without_us(page) {
                least = Some((wanted, id, page));
            }
            if least.is_some_and(|(known, ..)| known == Wanted::Inner) {
                break;
            }
        }
        least.map(|(_, id, page)| (id, page))
    }

    fn wanted(&self, id: NodeId) -> Wanted {
        let node = self.node(id);
        if node.is_anchor || !node.snapshots.is_empty() {
            Wanted::Anchor
        } else if node.is_leaf() {
            Wanted::Leaf
        } else {
            Wanted::Inner
        }
    }

    /// Gives up the least recently used leaf but `kept`, to which a node is added; false where there is none.
    pub(super) fn evict_leaf(&mut self, kept: NodeId, dropped: &mut Dropped) -> bool {
        let is_other_leaf = |id: &NodeId| self.node(*id).is_leaf() && *id != kept;
        let Some(leaf) = self.used.iter().find(is_other_leaf) else { return false };
        let parent = self.remove(leaf, dropped);
        if parent != kept {
            self.forget_empty_root(parent);
        }
        true
    }

    /// Gives up the least recently used snapshot.
    pub(crate) fn evict_snapshot(&mut self) -> Option<SnapshotId> {
        let all = self.nodes.iter().enumerate().flat_map(|(place, node)| {
            node.snapshots.iter().map(move |snapshot| (snapshot.last_used, place, snapshot.id))
        });
        let (_, place, id) = all.min_by_key(|(last_used, ..)| *last_used)?;
        self.nodes[place].snapshots.retain(|snapshot| snapshot.id != id);
        self.snapshots -= 1;
        Some(id)
    }

    /// Takes out the first node on the way of `tokens` that `is_bad`, by its place and pages, and all behind it.
    pub(crate) fn cut(
        &mut self,
        key: PrefixKey,
        tokens: &[TokenId],
        is_bad: &dyn Fn(usize, &[Option<PageId>]) -> bool,
        dropped: &mut Dropped,
    ) {
        let walk = self.walk(key, tokens);
        let bad = walk.nodes().iter().enumerate().find(|(place, node)| is_bad(*place, self.pages_of(**node)));
        if let Some((_, &node)) = bad {
            self.remove_branch(node, dropped);
        }
    }

    fn remove_branch(&mut self, top: NodeId, dropped: &mut Dropped) {
        // No node was used later than its parent, so children go before their parents.
        let is_below =
            |id: &NodeId| std::iter::successors(Some(*id), |id| self.node(*id).parent).any(|id| id == top);
        let below: Vec<NodeId> = self.used.iter().filter(is_below).collect();
        for id in below {
            let parent = self.remove(id, dropped);
            self.forget_empty_root(parent);
        }
    }

    /// Takes a leaf out of the tree; its parent.
    fn remove(&mut self, id: NodeId, dropped: &mut Dropped) -> NodeId {
        for group in 0..self.lifetimes.len() {
            dropped.pages.extend(self.page_of(id, group).map(|page| (group, page)));
            self.set_page(id, group, None);
        }
        self.used.remove(id);
        let parent = self.node(id).parent.expect("a leaf that can be evicted is no root");
        self.unlink(id, parent);
        let node = self.node_mut(id);
        let snapshots = node.snapshots.len();
        dropped.snapshots.extend(node.snapshots.drain(..).map(|snapshot| snapshot.id));
        (node.parent, node.sibling, node.length) = (None, None, 0);
        (node.open_tokens, node.is_anchor) = (0, false);
        self.snapshots -= snapshots;
        self.unused.push(id);
        self.node_mut(parent).children -= 1;
        if let Some(journal) = &mut self.journal {
            journal.removed(id);
        }
        parent
    }

    /// Takes a root out of the tree below which nothing is left.
    pub(super) fn forget_empty_root(&mut self, id: NodeId) {
        if self.node(id).is_leaf() && self.node(id).parent.is_none() {
            self.roots.retain(|_, root| *root != id);
            self.unused.push(id);
        }
    }

    /// Takes a node out of the list of its parent's children that begin with the same token.
    fn unlink(&mut self, id: NodeId, parent: NodeId) {
        let first = self.node(id).tokens()[0];
        let next = self.node(id).sibling;
        let before = self.children_with(parent, first).find(|other| self.node(*other).sibling == Some(id));
        match (before, next) {
            (Some(before), next) => self.node_mut(before).sibling = next,
            (None, Some(next)) => _ = self.children.insert((parent, first), next),
            (None, None) => _ = self.children.remove(&(parent, first)),
        }
    }
}
