//! How what a sequence computed becomes part of the tree.

use super::{Dropped, NodeId, PrefixKey, PrefixTree, Snapshot, common, first_page};
use gannet_ops::{PAGE_TOKENS, PageId, PageLifetime, SnapshotId, TokenId};

/// The page that a sequence holds at a place of a group, where it does.
pub(crate) type PageAt<'a> = &'a dyn Fn(usize, usize) -> Option<PageId>;

/// What publishing changed.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Pages that the tree holds now beside the sequence, by group.
    pub(crate) shared: Vec<(usize, PageId)>,
    pub(crate) dropped: Dropped,
}

impl Published {
    /// Nothing yet, with memory for so many pages and snapshots.
    pub(crate) fn with_room(pages: usize, snapshots: usize) -> Self {
        let dropped = Dropped { pages: Vec::with_capacity(pages), snapshots: Vec::with_capacity(snapshots) };
        Self { shared: Vec::with_capacity(pages), dropped }
    }
}

impl PrefixTree {
    /// Adds the computed `tokens` of a sequence. What the tree has already stays; a page that begins as one of the
    /// tree's shorter ones takes its place.
    pub(crate) fn publish(
        &mut self,
        key: PrefixKey,
        tokens: &[TokenId],
        page_at: PageAt<'_>,
        published: &mut Published,
    ) {
        if tokens.is_empty() {
            return;
        }
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let root = self.root(key);
        let mut at = root;
        for (place, run) in tokens.chunks(PAGE_TOKENS).enumerate() {
            let page_of = |group: usize| page_at(place, group);
            let Some(node) = self.publish_page(at, run, &page_of, published) else { break };
            path.push(node);
            at = node;
        }
        self.touch(&path);
        self.path = path;
        self.forget_empty_root(root);
    }

    /// The node below another that has a run of up to a page of tokens; none where one can't be made.
    fn publish_page(
        &mut self,
        parent: NodeId,
        run: &[TokenId],
        page_of: &dyn Fn(usize) -> Option<PageId>,
        published: &mut Published,
    ) -> Option<NodeId> {
        match self.best_child(parent, run) {
            Some((child, matched)) if matched == run.len() => {
                self.lend_open(child, run.len(), page_of, published);
                self.lend_windows(child, run.len(), page_of, published);
                Some(child)
            }
            Some((child, matched)) if matched == self.node(child).length => {
                self.grow(child, run, page_of, published).then_some(child)
            }
            Some(_) | None => self.insert(parent, run, page_of, published),
        }
    }

    /// Whether a node can be made of these pages: one in every group of full lifetime.
    fn suffices(&self, page_of: &dyn Fn(usize) -> Option<PageId>) -> bool {
        let is_full = |group: &usize| self.lifetimes[*group] == PageLifetime::Full;
        (0..self.lifetimes.len()).filter(is_full).all(|group| page_of(group).is_some())
    }

    /// A node's short run becomes the longer one that begins with it.
    fn grow(
        &mut self,
        id: NodeId,
        run: &[TokenId],
        page_of: &dyn Fn(usize) -> Option<PageId>,
        published: &mut Published,
    ) -> bool {
        if !self.suffices(page_of) {
            return false;
        }
        let has_snapshots = !self.node(id).snapshots.is_empty();
        let open_tokens = self.open_tokens(page_of, run.len());
        for group in 0..self.lifetimes.len() {
            let new = page_of(group);
            // A full page brings no open keys, and a snapshot inside of it still needs those that are there.
            let is_kept = new.is_none() && has_snapshots && self.lifetimes[group] == PageLifetime::Open;
            if !is_kept {
                self.replace(id, group, new, published);
            }
        }
        let node = self.node_mut(id);
        node.set_tokens(run);
        node.open_tokens = open_tokens.unwrap_or(node.open_tokens);
        self.note(id);
        true
    }

    /// Makes a node's page of a group another one, or none.
    fn replace(&mut self, id: NodeId, group: usize, new: Option<PageId>, published: &mut Published) {
        let old = self.page_of(id, group);
        if old != new {
            published.dropped.pages.extend(old.map(|page| (group, page)));
            published.shared.extend(new.map(|page| (group, page)));
            self.set_page(id, group, new);
        }
    }

    /// Gives a node that has all of a run the run's open keys, where its own don't reach as far.
    fn lend_open(
        &mut self,
        id: NodeId,
        run: usize,
        page_of: &dyn Fn(usize) -> Option<PageId>,
        published: &mut Published,
    ) {
        let is_open = |group: &usize| self.lifetimes[*group] == PageLifetime::Open;
        let reaches = self.node(id).open_tokens >= run;
        let has_all =
            (0..self.lifetimes.len()).filter(is_open).all(|group| self.page_of(id, group).is_some());
        let Some(tokens) = self.open_tokens(page_of, run) else { return };
        if reaches && has_all {
            return;
        }
        for group in 0..self.lifetimes.len() {
            if self.lifetimes[group] == PageLifetime::Open {
                self.replace(id, group, page_of(group), published);
            }
        }
        self.node_mut(id).open_tokens = tokens;
    }

    /// Gives a node that has no more than a run the run's pages of windows that it has lost.
    fn lend_windows(
        &mut self,
        id: NodeId,
        run: usize,
        page_of: &dyn Fn(usize) -> Option<PageId>,
        published: &mut Published,
    ) {
        if self.node(id).length > run {
            return;
        }
        for group in 0..self.lifetimes.len() {
            let is_window = matches!(self.lifetimes[group], PageLifetime::Window(_));
            if is_window && self.page_of(id, group).is_none() {
                self.replace(id, group, page_of(group), published);
            }
        }
    }

    /// Tokens of a run whose keys are in the open pages among these; none where there are no such pages.
    fn open_tokens(&self, page_of: &dyn Fn(usize) -> Option<PageId>, run: usize) -> Option<usize> {
        let is_open = |group: &usize| self.lifetimes[*group] == PageLifetime::Open;
        let mut open = (0..self.lifetimes.len()).filter(is_open);
        open.any(|group| page_of(group).is_some()).then_some(run)
    }

    fn insert(
        &mut self,
        parent: NodeId,
        run: &[TokenId],
        page_of: &dyn Fn(usize) -> Option<PageId>,
        published: &mut Published,
    ) -> Option<NodeId> {
        let is_full = self.count() >= self.nodes_max;
        if !self.suffices(page_of) || is_full && !self.evict_leaf(parent, &mut published.dropped) {
            return None;
        }
        let open_tokens = self.open_tokens(page_of, run.len()).unwrap_or(0);
        let id = self.add(Some(parent), run);
        self.used.touch(id);
        for group in 0..self.lifetimes.len() {
            let page = page_of(group);
            published.shared.extend(page.map(|page| (group, page)));
            self.set_page(id, group, page);
        }
        let sibling = self.children.insert((parent, run[0]), id);
        let node = self.node_mut(id);
        (node.sibling, node.open_tokens) = (sibling, open_tokens);
        self.node_mut(parent).children += 1;
        self.note(id);
        Some(id)
    }

    /// Marks the pages that a row behind exactly `tokens` reads of the groups of windows: others are likely to go on there.
    pub(crate) fn anchor(&mut self, key: PrefixKey, tokens: &[TokenId]) {
        let is_window = |lifetime: &&PageLifetime| matches!(lifetime, PageLifetime::Window(_));
        let windows = self.lifetimes.iter().filter(is_window);
        let Some(first) = windows.map(|window| first_page(*window, tokens.len())).min() else { return };
        let Some((last, _)) = self.place_of(key, tokens) else { return };
        let mut at = last;
        for _ in first..tokens.len().div_ceil(PAGE_TOKENS) {
            let node = self.node_mut(at);
            node.is_anchor = true;
            let Some(parent) = node.parent else { return };
            at = parent;
        }
    }

    /// Keeps a snapshot after exactly `tokens`, which were published. A second one of the same place is given back.
    pub(crate) fn keep_snapshot(
        &mut self,
        key: PrefixKey,
        tokens: &[TokenId],
        id: SnapshotId,
    ) -> Result<(), SnapshotId> {
        let (at, offset) = self.place_of(key, tokens).ok_or(id)?;
        self.now += 1;
        let snapshot = Snapshot { offset, id, last_used: self.now };
        let node = self.node_mut(at);
        if node.snapshots.iter().any(|known| known.offset == offset) {
            return Err(id);
        }
        node.snapshots.push(snapshot);
        node.snapshots.sort_unstable_by_key(|snapshot| snapshot.offset);
        self.snapshots += 1;
        Ok(())
    }

    /// Whether a snapshot after exactly `tokens` is kept.
    pub(crate) fn has_snapshot(&self, key: PrefixKey, tokens: &[TokenId]) -> bool {
        let place = self.place_of(key, tokens);
        place.is_some_and(|(at, offset)| self.node(at).snapshots.iter().any(|known| known.offset == offset))
    }

    /// The node in which exactly `tokens` end, and how many of its own they reach; none where they are not published
    /// or there are none.
    fn place_of(&self, key: PrefixKey, tokens: &[TokenId]) -> Option<(NodeId, usize)> {
        let mut at = *self.roots.get(&key)?;
        let mut offset = None;
        for run in tokens.chunks(PAGE_TOKENS) {
            let (child, matched) = self.best_child(at, run)?;
            (at, offset) = (child, (matched == run.len()).then_some(matched));
            offset?;
        }
        Some((at, offset?))
    }

    /// Panics where an invariant of the tree doesn't hold.
    pub(crate) fn check(&mut self) {
        let mut children = std::mem::take(&mut self.counted);
        children.clear();
        children.resize(self.nodes.len(), 0);
        // From the least recently used one on, so a parent comes after all of its children.
        for id in self.used.iter() {
            let node = self.node(id);
            assert!((1..=PAGE_TOKENS).contains(&node.length), "a node holds up to a page of tokens");
            assert!(
                node.length == PAGE_TOKENS || node.is_leaf(),
                "a node with a part of a page has no children"
            );
            assert!(self.suffices(&|group| self.page_of(id, group)), "a node has its page of full lifetime");
            assert!(node.snapshots.iter().all(|snapshot| snapshot.offset <= node.length));
            assert_eq!(children[id.0 as usize], node.children, "no node was used later than its parent");
            let parent = node.parent.expect("it is no root");
            children[parent.0 as usize] += 1;
            let others = self.children_with(parent, node.tokens[0]).filter(|other| *other != id);
            for other in others.map(|other| self.node(other)) {
                let shorter = other.length.min(node.length);
                assert!(
                    common(other.tokens(), node.tokens()) < shorter,
                    "no sibling's tokens begin with another's"
                );
            }
        }
        assert_eq!(self.used.iter().count(), self.count(), "each node is listed");
        assert!(self.count() <= self.nodes_max, "there are as many nodes as there may be");
        for root in self.roots.values() {
            let counted = children[root.0 as usize];
            assert!(counted > 0 && counted == self.node(*root).children, "a root has others below it");
        }
        self.counted = children;
        let snapshots: usize = self.nodes.iter().map(|node| node.snapshots.len()).sum();
        assert_eq!(snapshots, self.snapshots, "each snapshot is counted");
    }
}
