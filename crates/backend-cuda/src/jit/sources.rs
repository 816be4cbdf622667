//! The kernels' sources, part of the binary.

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../kernels/", $name)))),*]
    };
}

/// What files of kernels include.
pub(super) const HEADERS: [(&str, &str); 17] = files!["attention.cuh" "attention_codes.cuh" "codes.cuh" "formats.cuh" "gate.cuh" "int8.cuh" "math.cuh" "mma.cuh" "norm.cuh" "outputs.cuh" "recurrent.cuh" "ring.cuh" "rope.cuh" "route.cuh" "row.cuh" "sample.cuh" "wgmma.cuh"];

/// The files of kernels.
const KERNELS: [(&str, &str); 43] = files![
    "add.cu" "add_rms_norm.cu" "attention.cu" "attention_prefill.cu" "attention_split.cu" "attention_wide.cu" "cast.cu" "causal_conv.cu" "clamped_gate.cu" "combine_experts.cu" "concat.cu" "decay_gate.cu" "embed.cu" "embed_codes.cu" "expert_linear.cu" "finish_qkv.cu"
    "gated_delta_rule.cu" "gated_norm.cu" "gather_rows.cu" "gelu_gate.cu" "head_norm.cu" "l2_norm.cu" "linear.cu" "linear_codes.cu" "linear_few.cu" "linear_many.cu" "linear_narrow.cu" "linear_one.cu" "linear_one_codes.cu" "linear_one_wide.cu" "position_scale.cu" "rms_norm.cu" "rope.cu" "route_experts.cu" "route_normed.cu"
    "sample.cu" "scale.cu" "sigmoid_gate.cu" "silu_gate.cu" "slice.cu" "soft_cap.cu" "unpack.cu" "write_kv.cu"
];

/// The name and the text of a file of kernels, by its stem.
pub(super) fn text_of(stem: &str) -> (&'static str, &'static str) {
    let found = KERNELS.into_iter().find(|(name, _)| name.strip_suffix(".cu") == Some(stem));
    found.expect("variants are of files that are listed")
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_is_listed_and_in_the_catalogue() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let names = std::fs::read_dir(folder).expect("the folder is there").flatten();
        let names: BTreeSet<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let names: BTreeSet<&str> =
            names.iter().map(String::as_str).filter(|name| *name != "README.md").collect();
        let listed: BTreeSet<&str> = HEADERS.iter().chain(&KERNELS).map(|(name, _)| *name).collect();
        assert_eq!(names, listed);
        let compiled: BTreeSet<String> =
            catalogue::tested().iter().map(|variant| format!("{}.cu", variant.stem())).collect();
        let kernels: BTreeSet<String> = KERNELS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(compiled, kernels);
    }
}
