//! How far a sequence's tokens are in the tree, and from where it can go on.

use super::{NodeId, PrefixKey, PrefixTree, common};
use gannet_ops::{PAGE_TOKENS, PageId, PageLifetime, SnapshotId, TokenId};

/// The nodes that a sequence's tokens pass through.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Node i has the tokens of page i; the last one may hold only the first of them.
    nodes: Vec<NodeId>,
    /// Tokens that the tree has in common with the sequence.
    pub(crate) common: usize,
}

/// Where a sequence can go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    /// Tokens that needn't be computed.
    pub(crate) tokens: usize,
    /// The recurrent state after them, where the model has any.
    pub(crate) snapshot: Option<SnapshotId>,
}

impl Walk {
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }
}

impl PrefixTree {
    /// Follows `tokens` from the root as far as they are known, and marks what it passes as used.
    pub(crate) fn walk(&mut self, key: PrefixKey, tokens: &[TokenId]) -> Walk {
        let mut walk = Walk::default();
        let Some(mut at) = self.roots.get(&key).copied() else { return walk };
        while let Some((child, matched)) = self.best_child(at, &tokens[walk.common..]) {
            walk.nodes.push(child);
            walk.common += matched;
            if matched < PAGE_TOKENS {
                break;
            }
            at = child;
        }
        self.touch(&walk.nodes);
        walk
    }

    /// The child that has the most first tokens in common, at least one.
    pub(super) fn best_child(&self, at: NodeId, tokens: &[TokenId]) -> Option<(NodeId, usize)> {
        let matched = |child: NodeId| (child, common(self.node(child).tokens(), tokens));
        self.children_with(at, *tokens.first()?).map(matched).max_by_key(|(_, matched)| *matched)
    }

    /// The latest place, at most `at_most`, where every layer can resume.
    pub(crate) fn resume(&self, walk: &Walk, at_most: usize, is_recurrent: bool) -> Resume {
        let limit = walk.common.min(at_most);
        let nothing = Resume { tokens: 0, snapshot: None };
        if is_recurrent {
            let fitting = |found: &Resume| found.tokens <= limit && self.windows_hold(walk, found.tokens);
            return self
                .snapshots_on(walk)
                .filter(fitting)
                .max_by_key(|found| found.tokens)
                .unwrap_or(nothing);
        }
        let boundaries = (0..=limit / PAGE_TOKENS).rev().map(|page| page * PAGE_TOKENS);
        let mut places = std::iter::once(limit).chain(boundaries);
        let tokens = places.find(|tokens| self.windows_hold(walk, *tokens)).unwrap_or(0);
        Resume { tokens, snapshot: None }
    }

    fn snapshots_on(&self, walk: &Walk) -> impl Iterator<Item = Resume> + '_ {
        let of_node = |(page, node): (usize, NodeId)| {
            let resume = move |snapshot: &super::Snapshot| Resume {
                tokens: page * PAGE_TOKENS + snapshot.offset,
                snapshot: Some(snapshot.id),
            };
            self.node(node).snapshots.iter().map(resume)
        };
        walk.nodes.clone().into_iter().enumerate().flat_map(of_node)
    }

    /// Whether each group of windows and of open pages has the pages that a row at index `tokens` reads.
    fn windows_hold(&self, walk: &Walk, tokens: usize) -> bool {
        (0..self.lifetimes.len()).all(|group| {
            let first = first_page(self.lifetimes[group], tokens);
            let needed = &walk.nodes[first..tokens.div_ceil(PAGE_TOKENS)];
            let is_open = self.lifetimes[group] == PageLifetime::Open;
            needed.iter().all(|id| {
                let holds = !is_open || self.node(*id).open_tokens >= tokens % PAGE_TOKENS;
                holds && self.page_of(*id, group).is_some()
            })
        })
    }

    /// The pages of a group that a sequence which goes on at `tokens` needs: how many at the front it doesn't, and
    /// the others. The last one is to be copied unless `tokens` is a page's end.
    pub(crate) fn pages_for(&self, walk: &Walk, group: usize, tokens: usize) -> (usize, Vec<PageId>) {
        let first = first_page(self.lifetimes[group], tokens);
        let page = |node: &NodeId| self.page_of(*node, group).expect("`resume` found the page");
        (first, walk.nodes[first..tokens.div_ceil(PAGE_TOKENS)].iter().map(page).collect())
    }

    /// Marks a snapshot as used.
    pub(crate) fn touch_snapshot(&mut self, walk: &Walk, id: SnapshotId) {
        for node in &walk.nodes {
            self.now += 1;
            let now = self.now;
            if let Some(found) = self.node_mut(*node).snapshots.iter_mut().find(|snapshot| snapshot.id == id)
            {
                found.last_used = now;
            }
        }
    }
}

/// The first page that a row at index `tokens`, or a later one, reads in a group.
pub(crate) fn first_page(lifetime: PageLifetime, tokens: usize) -> usize {
    match lifetime {
        PageLifetime::Full => 0,
        PageLifetime::Window(window) => (tokens + 1).saturating_sub(window as usize) / PAGE_TOKENS,
        PageLifetime::Open => tokens / PAGE_TOKENS,
    }
}
