//! What a sequence keeps between steps, as sizes: pages of keys and values, recurrent state, sampling history.
//!
//! One layout serves the target and its drafters, so that a prefix hit or a rollback covers them all.

use crate::GroupId;

/// Tokens that one page holds, for all layers of its group.
pub const PAGE_TOKENS: usize = 64;

/// The state of a sequence: an entry a layer that keeps any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateLayout {
    /// Page groups: the layers of one lifetime share page numbers.
    pub groups: Vec<PageGroup>,
    /// One entry a layer with state, of the target and then of each drafter.
    pub entries: Vec<StateEntry>,
    /// The sampling history of a sequence, where a program samples.
    pub sampler: Option<SamplerLayout>,
}

/// Layers whose pages live equally long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageGroup {
    /// What the group is, for people: `full`, `window 512`, `draft`.
    pub name: String,
    /// When a page is no longer read.
    pub lifetime: PageLifetime,
}

/// When a page is no longer read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageLifetime {
    /// As long as the sequence.
    Full,
    /// While a key of it lies within this many tokens of the row that reads.
    Window(u32),
    /// While a row of the same 64 tokens may still come: what is kept unquantised of a page that fills.
    Open,
}

/// The state of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateEntry {
    /// Keys and values in pages.
    Paged(PagedLayout),
    /// A convolution window and a delta-rule matrix in a slot.
    Recurrent(RecurrentLayout),
}

/// Keys and values of one layer.
///
/// A page of the layer has keys, then values, each kv head after kv head, so that a (page, head) is contiguous; the
/// scales of quantised ones follow in planes of their own. How the numbers of a head lie is the backend's.
///
/// Keys in int8 have a scale a channel and page, so a page is quantised when its last row is written, and its rows see
/// each other's keys in half precision: those of this step as the step has them, those of earlier steps in a page of
/// the group `open`. What a row sees in which form depends on absolute positions alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagedLayout {
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// Encoding of keys.
    pub key_format: KvFormat,
    /// Encoding of values.
    pub value_format: KvFormat,
    /// The pages that it lives in.
    pub group: GroupId,
    /// The group of lifetime [`PageLifetime::Open`] with the keys of pages that fill, in half precision
    /// `[kv_head][PAGE_TOKENS][key_dim]`; for keys in int8, and for no others.
    pub open: Option<GroupId>,
}

/// An encoding of keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of single precision: its range, with 8 bits of precision.
    Bf16,
    /// Signed bytes times a scale in half precision: of keys a scale a channel and page, of values one a token, each for
    /// its kv head. See [`crate::int8`].
    Int8,
}

impl KvFormat {
    /// Every format, in the order in which people are offered them.
    pub const ALL: [KvFormat; 4] = [KvFormat::F16, KvFormat::Bf16, KvFormat::F32, KvFormat::Int8];

    /// The name that people choose it by.
    pub const fn name(self) -> &'static str {
        match self {
            KvFormat::F32 => "f32",
            KvFormat::F16 => "f16",
            KvFormat::Bf16 => "bf16",
            KvFormat::Int8 => "int8",
        }
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Bytes of one element, without scales.
    pub const fn bytes(self) -> usize {
        match self {
            KvFormat::F32 => 4,
            KvFormat::F16 | KvFormat::Bf16 => 2,
            KvFormat::Int8 => 1,
        }
    }
}

/// The recurrent state of one layer, in float32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecurrentLayout {
    /// The convolution's window.
    pub conv: ConvLayout,
    /// The delta rule's matrices.
    pub state: DeltaLayout,
    /// How a drafted row is taken back.
    pub rollback: Rollback,
}

/// The last `kernel - 1` inputs of a causal convolution: `[kernel - 1, channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvLayout {
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub kernel: usize,
}

/// A matrix a value head: `[value_heads, key_dim, value_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaLayout {
    /// Heads.
    pub value_heads: usize,
    /// Rows of a head's matrix.
    pub key_dim: usize,
    /// Columns of a head's matrix.
    pub value_dim: usize,
}

/// How the state after an accepted draft is found; both ways give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rollback {
    /// The state after each drafted row is kept.
    Candidates,
    /// The inputs of each drafted row are kept, and the accepted ones run again.
    Replay,
}

/// What sampling remembers of a sequence: which tokens it has seen, and how often it made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerLayout {
    /// Entries of the vocabulary.
    pub vocabulary: usize,
}

impl PagedLayout {
    /// Elements of one page of this layer: keys, then values.
    pub fn page_elements(&self) -> (usize, usize) {
        let rows = self.kv_heads * PAGE_TOKENS;
        (rows * self.key_dim, rows * self.value_dim)
    }

    /// Scales of one page of this layer: of keys, then of values.
    pub fn page_scales(&self) -> (usize, usize) {
        let keys = if self.key_format == KvFormat::Int8 { self.kv_heads * self.key_dim } else { 0 };
        let values = if self.value_format == KvFormat::Int8 { self.kv_heads * PAGE_TOKENS } else { 0 };
        (keys, values)
    }

    /// Bytes of one page of this layer, in whole words.
    pub fn page_bytes(&self) -> usize {
        let ((keys, values), scales) = (self.page_elements(), self.page_scales());
        let elements = keys * self.key_format.bytes() + values * self.value_format.bytes();
        (elements + (scales.0 + scales.1) * size_of::<u16>()).next_multiple_of(size_of::<u32>())
    }

    /// Bytes of this layer's keys in half precision, where a page of the group `open` has them.
    pub fn open_page_bytes(&self) -> usize {
        self.page_elements().0 * size_of::<u16>()
    }
}

impl RecurrentLayout {
    /// Elements of the convolution's window and of the matrices.
    pub fn elements(&self) -> (usize, usize) {
        let window = (self.conv.kernel - 1) * self.conv.channels;
        (window, self.state.value_heads * self.state.key_dim * self.state.value_dim)
    }

    /// Elements that are kept of so many rows, some of which may fall: the state before them and after each, or, for a
    /// replay, the window before them and the inputs of each: those of the convolution, and k, v and two gates a value
    /// head. q, k and v together are the convolution's channels, so that k and v are fewer than these.
    pub fn candidate_elements(&self, rows: usize) -> usize {
        let (window, matrices) = self.elements();
        if rows == 0 {
            return 0;
        }
        match self.rollback {
            Rollback::Candidates => (1 + rows) * (window + matrices),
            Rollback::Replay => window + rows * 2 * (self.conv.channels + self.state.value_heads),
        }
    }
}

impl StateLayout {
    /// Bytes of one page of a group, over all its layers.
    pub fn page_bytes(&self, group: GroupId) -> usize {
        let bytes = |entry: &StateEntry| match entry {
            StateEntry::Paged(paged) if paged.group == group => paged.page_bytes(),
            StateEntry::Paged(paged) if paged.open == Some(group) => paged.open_page_bytes(),
            StateEntry::Paged(_) | StateEntry::Recurrent(_) => 0,
        };
        self.entries.iter().map(bytes).sum()
    }

    /// Bytes of one bank of one sequence's recurrent state, over all layers; 0 where no layer has any.
    pub fn recurrent_bytes(&self) -> usize {
        let bytes = |entry: &StateEntry| match entry {
            StateEntry::Paged(_) => 0,
            StateEntry::Recurrent(recurrent) => {
                let (window, matrices) = recurrent.elements();
                (window + matrices) * size_of::<f32>()
            }
        };
        self.entries.iter().map(bytes).sum()
    }

    /// Bytes that so many rows of one sequence, some of which may fall, leave over all layers until it is known which stand.
    pub fn candidate_bytes(&self, rows: usize) -> usize {
        let bytes = |entry: &StateEntry| match entry {
            StateEntry::Paged(_) => 0,
            StateEntry::Recurrent(recurrent) => recurrent.candidate_elements(rows) * size_of::<f32>(),
        };
        self.entries.iter().map(bytes).sum()
    }

    /// Whether any layer has recurrent state.
    pub fn is_recurrent(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, StateEntry::Recurrent(_)))
    }

    /// Whether any layer sees a window alone.
    pub fn has_windows(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.lifetime, PageLifetime::Window(_)))
    }
}
