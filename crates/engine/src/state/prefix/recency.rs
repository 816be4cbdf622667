//! Nodes in the order of their last use, as links between their places: each change is of constant cost and takes no memory
//! once there are links for all nodes.

use super::NodeId;

/// Some nodes, the least recently used one first.
#[derive(Default)]
pub(super) struct Recency {
    /// By node; none for nodes that are not listed.
    links: Vec<Option<Links>>,
    first: Option<NodeId>,
    last: Option<NodeId>,
}

#[derive(Clone, Copy)]
struct Links {
    before: Option<NodeId>,
    after: Option<NodeId>,
}

impl Recency {
    /// A list for so many nodes.
    pub(super) fn with_room(nodes: usize) -> Self {
        Self { links: Vec::with_capacity(nodes), first: None, last: None }
    }

    /// Lists a node as the one that was used last.
    pub(super) fn touch(&mut self, id: NodeId) {
        self.remove(id);
        let place = id.0 as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, None);
        }
        let before = self.last.replace(id);
        self.links[place] = Some(Links { before, after: None });
        match before {
            Some(before) => self.listed_mut(before).after = Some(id),
            None => self.first = Some(id),
        }
    }

    /// Takes a node out, if it is listed.
    pub(super) fn remove(&mut self, id: NodeId) {
        let Some(Links { before, after }) = self.links.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        match before {
            Some(before) => self.listed_mut(before).after = after,
            None => self.first = after,
        }
        match after {
            Some(after) => self.listed_mut(after).before = before,
            None => self.last = before,
        }
    }

    /// The nodes, the least recently used one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        let after = |id: &NodeId| self.links[id.0 as usize].and_then(|links| links.after);
        std::iter::successors(self.first, after)
    }

    fn listed_mut(&mut self, id: NodeId) -> &mut Links {
        self.links[id.0 as usize].as_mut().expect("a neighbour is listed")
    }
}
