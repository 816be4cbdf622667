//! The state that layers keep between steps: page groups by lifetime, an entry a layer.
//!
//! The layers of a model come first, then those of its drafter, whose pages are groups of their own.

use crate::ProgramOptions;
use crate::config::{AttentionConfig, DeltaNetConfig, Mixer, ModelConfig};
use gannet_ops::{
    ConvLayout, DeltaLayout, GroupId, KvFormat, PageGroup, PageLifetime, PagedLayout, RecurrentLayout,
    Rollback, SamplerLayout, StateEntry, StateId, StateLayout,
};

/// The layout of all layers, in order: entry i belongs to layer i of the model, or to one of its drafter's after them.
pub(crate) fn state_layout(
    config: &ModelConfig,
    drafter: Option<&ModelConfig>,
    options: &ProgramOptions,
) -> StateLayout {
    let mut layout = StateLayout::default();
    let samples = config.pooling.is_none();
    layout.sampler = samples.then_some(SamplerLayout { vocabulary: config.vocabulary });
    push_entries(&mut layout, config, "", options);
    if let Some(drafter) = drafter {
        push_entries(&mut layout, drafter, "draft ", options);
    }
    layout
}

/// The entry of a layer of the model; every mixer keeps some state.
pub(crate) fn state_of(layer: usize) -> StateId {
    StateId(layer as u32)
}

fn push_entries(layout: &mut StateLayout, config: &ModelConfig, owner: &str, options: &ProgramOptions) {
    for layer in &config.layers {
        let entry = match &layer.mixer {
            Mixer::Attention(attention) => StateEntry::Paged(PagedLayout {
                kv_heads: attention.kv_heads,
                key_dim: attention.head_dim,
                value_dim: attention.value_dim,
                key_format: options.kv_format,
                value_format: options.kv_format,
                group: group_of(&mut layout.groups, owner, lifetime(attention)),
                open: (options.kv_format == KvFormat::Int8)
                    .then(|| group_of(&mut layout.groups, owner, PageLifetime::Open)),
            }),
            Mixer::GatedDeltaNet(delta) => StateEntry::Recurrent(recurrent(delta, options.rollback)),
        };
        layout.entries.push(entry);
    }
}

fn recurrent(config: &DeltaNetConfig, rollback: Rollback) -> RecurrentLayout {
    let DeltaNetConfig { value_heads, key_dim, value_dim, kernel, .. } = *config;
    RecurrentLayout {
        conv: ConvLayout { channels: config.channels(), kernel },
        state: DeltaLayout { value_heads, key_dim, value_dim },
        rollback,
    }
}

fn lifetime(attention: &AttentionConfig) -> PageLifetime {
    match attention.window {
        // Rows after a row's own are seen, so a prompt's pages are needed until its last row.
        Some(window) if !attention.bidirectional => PageLifetime::Window(window),
        Some(_) | None => PageLifetime::Full,
    }
}

/// The group of this owner and lifetime, made where it is new.
fn group_of(groups: &mut Vec<PageGroup>, owner: &str, lifetime: PageLifetime) -> GroupId {
    let name = match lifetime {
        PageLifetime::Full => format!("{owner}full"),
        PageLifetime::Window(tokens) => format!("{owner}window {tokens}"),
        PageLifetime::Open => format!("{owner}open keys"),
    };
    let known = groups.iter().position(|group| group.name == name);
    let place = known.unwrap_or_else(|| {
        groups.push(PageGroup { name, lifetime });
        groups.len() - 1
    });
    GroupId(place as u32)
}
