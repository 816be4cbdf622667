//! The quantisation that a GGUF file's name states, and the numbers of a split file.
//!
//! A label is a word of the name in the form that converters write: `Q4_K_M`, `IQ2_XXS`, `TQ1_0`, `BF16`, `MXFP4_MOE`,
//! perhaps with `UD-` before it. Upper and lower case are the same.

/// What may follow the number of bits.
const VARIANTS: [&str; 11] = ["K", "S", "M", "L", "XL", "XS", "XXS", "XXL", "NL", "0", "1"];
/// Labels without a number of bits of their own.
const FORMATS: [&str; 8] = ["BF16", "F16", "F32", "FP16", "FP32", "FP8", "MXFP4", "NVFP4"];

/// The quantisation label of a GGUF file, in capitals: that of the file's name, else that of its folder's.
pub fn quant_label(path: &str) -> Option<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let (stem, _) = split_numbers(gguf_stem(file)?);
    last_label(stem).or_else(|| last_label(folder.rsplit('/').next()?))
}

/// `file` without the ending of GGUF files.
pub(crate) fn gguf_stem(file: &str) -> Option<&str> {
    let cut = file.len().checked_sub(".gguf".len())?;
    let ending = file.get(cut..)?;
    ending.eq_ignore_ascii_case(".gguf").then(|| &file[..cut])
}

/// A stem without `-00001-of-00003`, and these two numbers.
pub(crate) fn split_numbers(stem: &str) -> (&str, Option<(u32, u32)>) {
    let numbers = || {
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (base, part) = rest.rsplit_once('-')?;
        let is_number = |text: &str| text.len() == 5 && text.bytes().all(|digit| digit.is_ascii_digit());
        let number = |text: &str| is_number(text).then(|| text.parse::<u32>().ok()).flatten();
        Some((base, (number(part)?, number(count)?)))
    };
    match numbers() {
        Some((base, numbers)) => (base, Some(numbers)),
        None => (stem, None),
    }
}

fn last_label(text: &str) -> Option<String> {
    let text = text.to_ascii_uppercase();
    let ends_word = |at: usize| at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric();
    let starts = (0..text.len()).rev().filter(|&at| text.is_char_boundary(at) && ends_word(at));
    for start in starts {
        if let Some(length) = label_length(&text[start..]) {
            let is_dynamic = text[..start].strip_suffix("UD-").is_some_and(|before| ends_word(before.len()));
            let start = if is_dynamic { start - "UD-".len() } else { start };
            let end = start + length + if is_dynamic { "UD-".len() } else { 0 };
            return Some(text[start..end].to_owned());
        }
    }
    None
}

/// The length of the label with which `text` begins.
fn label_length(text: &str) -> Option<usize> {
    let word_end = |at: usize| {
        text[at..].find(|letter: char| !letter.is_ascii_alphanumeric()).map_or(text.len(), |n| at + n)
    };
    let mut end = word_end(0);
    let word = &text[..end];
    if FORMATS.contains(&word) {
        return Some(if text[end..].starts_with("_MOE") && word_end(end + 1) == end + 4 {
            end + 4
        } else {
            end
        });
    }
    let bits = ["TQ", "IQ", "Q"].iter().find_map(|family| word.strip_prefix(family))?;
    if bits.is_empty() || bits.len() > 2 || !bits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    while text[end..].starts_with('_') {
        let next = word_end(end + 1);
        if !VARIANTS.contains(&&text[end + 1..next]) {
            break;
        }
        end = next;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_in_names() {
        let check =
            |path: &str, label: Option<&str>| assert_eq!(quant_label(path).as_deref(), label, "{path}");
        check("Qwen3-0.6B-Q8_0.gguf", Some("Q8_0"));
        check("gemma-3-270m-q4_k_m.gguf", Some("Q4_K_M"));
        check("SmolLM2-135M-Instruct.Q4_1.GGUF", Some("Q4_1"));
        check("model_Q5_K_S.gguf", Some("Q5_K_S"));
        check("m-UD-Q4_K_XL.gguf", Some("UD-Q4_K_XL"));
        check("UD-IQ2_XXS/m-UD-IQ2_XXS-00001-of-00003.gguf", Some("UD-IQ2_XXS"));
        check("m-BF16.gguf", Some("BF16"));
        check("BF16/m-00002-of-00002.gguf", Some("BF16"));
        check("gpt-oss-20b-mxfp4.gguf", Some("MXFP4"));
        check("m-MXFP4_MOE.gguf", Some("MXFP4_MOE"));
        check("m-TQ1_0.gguf", Some("TQ1_0"));
        check("m-Q6_K_v2.gguf", Some("Q6_K"));
        check("m-fp16.gguf", Some("FP16"));
        check("Qwen3-4B.gguf", None);
        check("bf16x.gguf", None);
        check("mübf16.gguf", Some("BF16"));
        check("ü.gguf", None);
        check("m-Q4_K_M.bin", None);
        check("üüü", None);
    }

    #[test]
    fn split_files_carry_numbers() {
        assert_eq!(split_numbers("m-00002-of-00003"), ("m", Some((2, 3))));
        assert_eq!(split_numbers("m-2-of-3"), ("m-2-of-3", None));
        assert_eq!(split_numbers("m-of-00003"), ("m-of-00003", None));
        assert_eq!(split_numbers("m-+0001-of-00003").1, None);
    }
}
