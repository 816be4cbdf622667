//! The state that a model's layers keep between steps: page groups by lifetime, an entry a layer.

use crate::ProgramOptions;
use crate::config::{AttentionConfig, Mixer, ModelConfig};
use gannet_ops::{
    GroupId, PageGroup, PageLifetime, PagedLayout, SamplerLayout, StateEntry, StateId, StateLayout,
};

/// The layout of all layers, in order: entry i belongs to layer i.
pub(crate) fn state_layout(config: &ModelConfig, options: &ProgramOptions) -> StateLayout {
    let mut groups = Vec::new();
    let entries = config.layers.iter().map(|layer| match &layer.mixer {
        Mixer::Attention(attention) => StateEntry::Paged(PagedLayout {
            kv_heads: attention.kv_heads,
            key_dim: attention.head_dim,
            value_dim: attention.value_dim,
            key_format: options.kv_format,
            value_format: options.kv_format,
            group: group_of(&mut groups, lifetime(attention)),
        }),
    });
    let entries = entries.collect();
    StateLayout { groups, entries, sampler: Some(SamplerLayout { vocabulary: config.vocabulary }) }
}

/// The entry of a layer; every mixer keeps some state.
pub(crate) fn state_of(layer: usize) -> StateId {
    StateId(layer as u32)
}

fn lifetime(attention: &AttentionConfig) -> PageLifetime {
    attention.window.map_or(PageLifetime::Full, PageLifetime::Window)
}

/// The group of this lifetime, made where it is new.
fn group_of(groups: &mut Vec<PageGroup>, lifetime: PageLifetime) -> GroupId {
    let known = groups.iter().position(|group| group.lifetime == lifetime);
    let place = known.unwrap_or_else(|| {
        let name = match lifetime {
            PageLifetime::Full => "full".to_owned(),
            PageLifetime::Window(tokens) => format!("window {tokens}"),
        };
        groups.push(PageGroup { name, lifetime });
        groups.len() - 1
    });
    GroupId(place as u32)
}
