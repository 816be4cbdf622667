//! A program as text: the same text for the same program, so that snapshots and reviews can rely on it.
//!
//! A header names what the program reads and keeps; then a line a node: what it makes, the op with its inputs,
//! weights and parameters, and the types of what it makes. Equal layers are not collapsed, because a difference
//! between two layers is what a reader looks for.

use crate::{
    Attention, Element, HeadMap, InputKind, Mask, Node, Op, OutputKind, PageLifetime, PoolKind, Program,
    Rollback, Rope, Rows, StateEntry, Value, ValueId, WeightRole,
};

/// The program as text.
pub fn print(program: &Program) -> String {
    let mut out = format!("program {}", program.name);
    if program.whole_prompt_only {
        out += ", whole prompts only";
    }
    out += "\n";
    section(&mut out, "inputs", program.inputs.iter().map(|(kind, id)| input_line(program, *kind, *id)));
    section(&mut out, "state", state_lines(program));
    section(&mut out, "weights", program.weights.iter().map(weight_line));
    out += "nodes\n";
    for node in &program.nodes {
        print_node(&mut out, program, node, "  ");
    }
    let output = |(kind, id): &(OutputKind, ValueId)| format!("{} = %{}", output_name(*kind), id.0);
    section(&mut out, "outputs", program.outputs.iter().map(output));
    out
}

fn section(out: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    for (number, line) in lines.enumerate() {
        if number == 0 {
            *out += &format!("{name}\n");
        }
        *out += &format!("  {line}\n");
    }
}

fn input_line(program: &Program, kind: InputKind, id: ValueId) -> String {
    let name = match kind {
        InputKind::Ids => "ids".to_owned(),
        InputKind::Embeddings => "embeddings".to_owned(),
        InputKind::Handed(number) => format!("handed {number}"),
    };
    format!("%{} = {name} : {}", id.0, type_text(program.value(id)))
}

fn output_name(kind: OutputKind) -> &'static str {
    match kind {
        OutputKind::Logits => "logits",
        OutputKind::Hidden => "hidden",
        OutputKind::Pooled => "pooled",
        OutputKind::Tokens => "tokens",
        OutputKind::Accepted => "accepted",
    }
}

fn state_lines(program: &Program) -> impl Iterator<Item = String> {
    let groups = program.state.groups.iter().enumerate().map(|(number, group)| {
        let lifetime = match group.lifetime {
            PageLifetime::Full => "whole sequence".to_owned(),
            PageLifetime::Window(window) => format!("last {window}"),
            PageLifetime::Open => "page that fills".to_owned(),
        };
        format!("group {number} `{}`, {lifetime}", group.name)
    });
    let sampler = program.state.sampler.map(|sampler| format!("sampler of {} tokens", sampler.vocabulary));
    groups.chain(program.state.entries.iter().enumerate().map(entry_line)).chain(sampler)
}

fn entry_line((number, entry): (usize, &StateEntry)) -> String {
    match entry {
        StateEntry::Paged(paged) => {
            let keys = format!("{} x {} {}", paged.kv_heads, paged.key_dim, paged.key_format.name());
            let values = format!("{} x {} {}", paged.kv_heads, paged.value_dim, paged.value_format.name());
            let open = paged.open.map_or_else(String::new, |open| format!(", open keys in group {}", open.0));
            format!("s{number} = paged keys {keys}, values {values}, group {}{open}", paged.group.0)
        }
        StateEntry::Recurrent(recurrent) => {
            let (conv, delta) = (recurrent.conv, recurrent.state);
            let window = format!("{} x {}", conv.kernel.saturating_sub(1), conv.channels);
            let matrices = format!("{} x {} x {}", delta.value_heads, delta.key_dim, delta.value_dim);
            let rollback = match recurrent.rollback {
                Rollback::Candidates => "candidates",
                Rollback::Replay => "replay",
            };
            format!("s{number} = recurrent window {window}, matrices {matrices}, {rollback}")
        }
    }
}

fn weight_line(weight: &crate::WeightUse) -> String {
    let role = match weight.role {
        WeightRole::Vector => "vector",
        WeightRole::Matrix => "matrix",
        WeightRole::Embedding => "embedding",
        WeightRole::TiedEmbedding => "tied embedding",
        WeightRole::Experts => "experts",
        WeightRole::Convolution => "convolution",
    };
    format!("{} : {:?} {role}", weight.name, weight.shape)
}

fn print_node(out: &mut String, program: &Program, node: &Node, indent: &str) {
    *out += indent;
    if !node.outputs.is_empty() {
        *out += &format!("{} = ", values_text(&node.outputs));
    }
    *out += node.op.name();
    let body = if let Op::Fused { body, .. } = &node.op { &body[..] } else { &[] };
    let mut operands: Vec<String> = node.inputs.iter().map(|id| format!("%{}", id.0)).collect();
    if body.is_empty() {
        operands.extend(node.op.weights().iter().map(|id| program.weight(*id).name.clone()));
        operands.extend(parameters(&node.op));
    }
    if !operands.is_empty() {
        *out += &format!(" {}", operands.join(", "));
    }
    if !node.outputs.is_empty() {
        let types: Vec<String> = node.outputs.iter().map(|id| type_text(program.value(*id))).collect();
        *out += &format!(" : {}", types.join(", "));
    }
    *out += "\n";
    for part in body {
        print_node(out, program, part, &format!("{indent}  "));
    }
}

fn values_text(ids: &[ValueId]) -> String {
    ids.iter().map(|id| format!("%{}", id.0)).collect::<Vec<_>>().join(", ")
}

/// `[tokens, 576]`; ids are marked, numbers are not.
pub(crate) fn type_text(value: Value) -> String {
    let rows = match value.rows {
        Rows::Tokens => "tokens".to_owned(),
        Rows::Outputs => "outputs".to_owned(),
        Rows::Sequences => "sequences".to_owned(),
        Rows::Routed(k) => format!("{k} x tokens"),
        Rows::Handed => "handed".to_owned(),
    };
    let element = match value.element {
        Element::F32 => "",
        Element::Id => " id",
    };
    format!("[{rows}, {}]{element}", value.width)
}

/// What an op has beside values and weights, as `name=value`.
fn parameters(op: &Op) -> Vec<String> {
    match op {
        Op::RmsNorm { epsilon, .. } => vec![format!("epsilon={epsilon:e}")],
        Op::HeadNorm { heads, epsilon, .. } | Op::GatedNorm { heads, epsilon, .. } => {
            vec![format!("heads={heads}"), format!("epsilon={epsilon:e}")]
        }
        Op::L2Norm { heads, epsilon, scale } => {
            vec![format!("heads={heads}"), format!("epsilon={epsilon:e}"), format!("scale={scale}")]
        }
        Op::Rope(rope) => rope_parameters(rope),
        Op::WriteKv { state } | Op::CausalConv { state, .. } => vec![format!("s{}", state.0)],
        Op::Attention(attention) => attention_parameters(attention),
        Op::GatedDeltaRule(rule) => {
            let map = match rule.head_map {
                HeadMap::Grouped => "grouped",
                HeadMap::Tiled => "tiled",
            };
            vec![
                format!("s{}", rule.state.0),
                format!("key_heads={}", rule.key_heads),
                format!("heads={map}"),
            ]
        }
        Op::SoftCap { cap } => vec![format!("cap={cap}")],
        Op::PositionScale { slope, period } => vec![format!("slope={slope}"), format!("period={period}")],
        Op::Scale { factor } => vec![format!("factor={factor}")],
        Op::RouteExperts(router) => {
            let renormalise = router.renormalise.then(|| "renormalised".to_owned());
            [format!("top_k={}", router.top_k)].into_iter().chain(renormalise).collect()
        }
        Op::ClampedGate { alpha, limit } => vec![format!("alpha={alpha}"), format!("limit={limit}")],
        Op::ExpertLinear(_) => Vec::new(),
        Op::Pool { kind } => vec![pool_name(*kind).to_owned()],
        Op::GatherRows { handed } => vec![format!("map={handed}")],
        Op::MapIds { table } => vec![format!("table of {}", table.len())],
        Op::Slice { groups, start, width } => {
            vec![format!("groups={groups}"), format!("columns={start}..{}", start.saturating_add(*width))]
        }
        Op::Capture { id } => vec![format!("capture={}", id.0)],
        Op::Embed { .. }
        | Op::Linear { .. }
        | Op::DecayGate { .. }
        | Op::SiluGate
        | Op::GeluGate
        | Op::SigmoidGate
        | Op::Add
        | Op::CombineExperts
        | Op::SelectOutputs
        | Op::Concat
        | Op::Sample
        | Op::Accept
        | Op::Fused { .. } => Vec::new(),
    }
}

fn pool_name(kind: PoolKind) -> &'static str {
    match kind {
        PoolKind::First => "first",
        PoolKind::Last => "last",
        PoolKind::Mean => "mean",
    }
}

/// The table by its ends, which tell base and scaling apart without listing it.
fn rope_parameters(rope: &Rope) -> Vec<String> {
    let frequencies = &rope.table.inverse_frequencies;
    let mut text = vec![format!("heads={}", rope.heads), format!("dims={}", 2 * frequencies.len())];
    if let (Some(first), Some(last)) = (frequencies.first(), frequencies.last()) {
        text.push(format!("frequencies={first:e}..{last:e}"));
    }
    if rope.table.attention_scale != 1.0 {
        text.push(format!("attention_scale={}", rope.table.attention_scale));
    }
    if rope.table.axes.iter().any(|axis| *axis != 0) {
        text.push("axes=3".to_owned());
    }
    text
}

fn attention_parameters(attention: &Attention) -> Vec<String> {
    let mask = match attention.mask {
        Mask::Causal => "causal".to_owned(),
        Mask::Window(window) => format!("window {window}"),
        Mask::Block => "block".to_owned(),
        Mask::BlockWindow(window) => format!("block window {window}"),
    };
    let mut text = vec![format!("s{}", attention.state.0), format!("heads={}", attention.heads)];
    text.push(format!("scale={}", attention.scale));
    text.push(format!("mask={mask}"));
    text.extend(attention.soft_cap.map(|cap| format!("cap={cap}")));
    text
}
