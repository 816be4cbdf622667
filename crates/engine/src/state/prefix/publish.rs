//! How what a sequence computed becomes part of the tree.

use super::{Dropped, Node, NodeId, PrefixKey, PrefixTree, Snapshot, common};
use gannet_ops::{PAGE_TOKENS, PageId, PageLifetime, SnapshotId, TokenId};

/// The page that a sequence holds of each group at each place, where it does.
pub(crate) type PagesAt<'a> = &'a dyn Fn(usize) -> Vec<Option<PageId>>;

/// What publishing changed.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// Pages that the tree holds now beside the sequence, by group.
    pub(crate) shared: Vec<(usize, PageId)>,
    pub(crate) dropped: Dropped,
}

impl PrefixTree {
    /// Adds the computed `tokens` of a sequence. What the tree has already stays; a page that begins as one of the
    /// tree's shorter ones takes its place.
    pub(crate) fn publish(&mut self, key: PrefixKey, tokens: &[TokenId], pages_at: PagesAt<'_>) -> Published {
        let mut published = Published::default();
        let mut at = self.root(key);
        for (place, run) in tokens.chunks(PAGE_TOKENS).enumerate() {
            let known = self.best_child(at, run);
            at = match known {
                Some((child, matched)) if matched == run.len() => {
                    self.lend_open(child, run.len(), &pages_at(place), &mut published);
                    child
                }
                Some((child, matched)) if matched == self.node(child).tokens.len() => {
                    if !self.grow(child, run, pages_at(place), &mut published) {
                        break;
                    }
                    child
                }
                Some(_) | None => match self.insert(at, run, pages_at(place), &mut published) {
                    Some(child) => child,
                    None => break,
                },
            };
            self.touch(at);
        }
        published
    }

    /// Whether a node can be made of these pages: one in every group of full lifetime.
    fn suffices(&self, pages: &[Option<PageId>]) -> bool {
        let is_needed = |group: usize| self.lifetimes[group] == PageLifetime::Full;
        pages.iter().enumerate().all(|(group, page)| page.is_some() || !is_needed(group))
    }

    /// A node's short run becomes the longer one that begins with it.
    fn grow(
        &mut self,
        id: NodeId,
        run: &[TokenId],
        pages: Vec<Option<PageId>>,
        published: &mut Published,
    ) -> bool {
        if !self.suffices(&pages) {
            return false;
        }
        let has_snapshots = !self.node(id).snapshots.is_empty();
        let open_tokens = self.open_tokens(&pages, run.len());
        for (group, new) in pages.into_iter().enumerate() {
            // A full page brings no open keys, and a snapshot inside of it still needs those that are there.
            let is_kept = new.is_none() && has_snapshots && self.lifetimes[group] == PageLifetime::Open;
            if !is_kept {
                self.replace(id, group, new, published);
            }
        }
        self.change(id, |node| {
            node.tokens = run.to_vec();
            node.open_tokens = open_tokens.unwrap_or(node.open_tokens);
        });
        true
    }

    /// Makes a node's page of a group another one, or none.
    fn replace(&mut self, id: NodeId, group: usize, new: Option<PageId>, published: &mut Published) {
        let old = self.node(id).pages[group];
        if old != new {
            published.dropped.pages.extend(old.map(|page| (group, page)));
            published.shared.extend(new.map(|page| (group, page)));
            self.change(id, |node| node.pages[group] = new);
        }
    }

    /// Gives a node that has all of a run the run's open keys, where its own don't reach as far.
    fn lend_open(&mut self, id: NodeId, run: usize, pages: &[Option<PageId>], published: &mut Published) {
        let reaches = |node: &Node| {
            let is_open = |group: &usize| self.lifetimes[*group] == PageLifetime::Open;
            let mut open = (0..self.lifetimes.len()).filter(is_open);
            node.open_tokens >= run && open.all(|group| node.pages[group].is_some())
        };
        let Some(tokens) = self.open_tokens(pages, run) else { return };
        if reaches(self.node(id)) {
            return;
        }
        for (group, page) in pages.iter().enumerate() {
            if self.lifetimes[group] == PageLifetime::Open {
                self.replace(id, group, *page, published);
            }
        }
        self.node_mut(id).open_tokens = tokens;
    }

    /// Tokens of a run whose keys are in the open pages among these; none where there are no such pages.
    fn open_tokens(&self, pages: &[Option<PageId>], run: usize) -> Option<usize> {
        let mut open =
            pages.iter().enumerate().filter(|(group, _)| self.lifetimes[*group] == PageLifetime::Open);
        open.any(|(_, page)| page.is_some()).then_some(run)
    }

    fn insert(
        &mut self,
        parent: NodeId,
        run: &[TokenId],
        pages: Vec<Option<PageId>>,
        published: &mut Published,
    ) -> Option<NodeId> {
        if !self.suffices(&pages) {
            return None;
        }
        published.shared.extend(pages.iter().enumerate().filter_map(|(group, page)| Some((group, (*page)?))));
        let first = *run.first().expect("a run has a token");
        let open_tokens = self.open_tokens(&pages, run.len()).unwrap_or(0);
        let node = Node { parent: Some(parent), tokens: run.to_vec(), pages, open_tokens, ..Node::default() };
        let id = self.add(node);
        self.change(parent, |node| node.children.entry(first).or_default().push(id));
        self.order.insert(id, &self.nodes[id.0 as usize]);
        Some(id)
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
    pub(crate) fn check(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            if node.is_root() {
                continue;
            }
            assert!((1..=PAGE_TOKENS).contains(&node.tokens.len()), "a node holds up to a page of tokens");
            assert!(
                node.tokens.len() == PAGE_TOKENS || node.is_leaf(),
                "a node with a part of a page has no children"
            );
            assert!(self.suffices(&node.pages), "a node has its page in every group of full lifetime");
            assert!(node.snapshots.iter().all(|snapshot| snapshot.offset <= node.tokens.len()));
            let parent = self.node(node.parent.expect("it is no root"));
            let siblings = &parent.children[&node.tokens[0]];
            let is_other = |id: &&NodeId| id.0 as usize != place;
            for other in siblings.iter().filter(is_other) {
                let other = &self.node(*other).tokens;
                let shorter = other.len().min(node.tokens.len());
                assert!(common(other, &node.tokens) < shorter, "no sibling's tokens begin with another's");
            }
        }
    }
}
