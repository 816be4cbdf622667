//! Pages by what they are for, as people are shown them.

use super::PageCounts;
use gannet_ops::PageLifetime;

/// What pages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Keys and values as long as their sequence.
    Full,
    /// Those that a window still reads.
    Window,
    /// Unquantised keys of pages that are not full yet.
    Open,
}

impl PageKind {
    /// All of them.
    pub const ALL: [PageKind; 3] = [PageKind::Full, PageKind::Window, PageKind::Open];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            PageKind::Full => "full",
            PageKind::Window => "window",
            PageKind::Open => "open",
        }
    }

    pub(super) fn of(lifetime: PageLifetime) -> Self {
        match lifetime {
            PageLifetime::Full => PageKind::Full,
            PageLifetime::Window(_) => PageKind::Window,
            PageLifetime::Open => PageKind::Open,
        }
    }
}

/// What pages of each kind are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagesByKind(pub(super) [PageCounts; PageKind::ALL.len()]);

impl PagesByKind {
    /// Those of one kind.
    pub fn of(&self, kind: PageKind) -> PageCounts {
        self.0[kind as usize]
    }

    /// Those of all kinds together.
    pub fn total(&self) -> PageCounts {
        self.0.iter().fold(PageCounts::default(), |sum, counts| PageCounts {
            in_use: sum.in_use + counts.in_use,
            cached: sum.cached + counts.cached,
            total: sum.total + counts.total,
        })
    }
}
