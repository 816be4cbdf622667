//! The same stem means the same thing: a kernel's file is named after the operation or the fusion it computes.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{RustFile, TextFile};

/// Files in a `kernels/` folder that serve several operations: gates and sums of rows, unpackers, the four norms, pages,
/// dot products.
const SHARED_STEMS: [&str; 6] = ["mod", "elementwise", "formats", "norm", "pages", "product"];

/// Every file and folder directly in `crates/backend-*/src/kernels/`.
pub(super) fn stems(rust: &[RustFile<'_>], texts: &[TextFile]) -> Vec<Finding> {
    let ops = rust.iter().filter(|file| file.path.starts_with("crates/ops/src/"));
    let mut known: BTreeSet<String> = ops.flat_map(|file| variants(&file.syntax)).collect();
    known.extend(SHARED_STEMS.map(str::to_owned));
    let mut found = BTreeSet::new();
    for file in texts {
        let Some(stem) = kernel_stem(&file.path) else {
            continue;
        };
        if !known.contains(stem) {
            let message = format!(
                "`{stem}` is no operation of `enum Op` and no fusion: name the file after what it computes"
            );
            found.insert(Finding::new("kernel-stem", &file.path, message));
        }
    }
    found.into_iter().collect()
}

/// The stem directly below `kernels/` of a backend.
fn kernel_stem(path: &str) -> Option<&str> {
    let (backend, inner) = path.strip_prefix("crates/backend-")?.split_once("/src/kernels/")?;
    let first = inner.split('/').next()?;
    (!backend.contains('/')).then(|| first.split('.').next()).flatten()
}

/// The variants of `enum Op` and of the fusions, in snake case.
fn variants(file: &syn::File) -> Vec<String> {
    let enums =
        file.items.iter().filter_map(|item| if let syn::Item::Enum(item) = item { Some(item) } else { None });
    let enums =
        enums.filter(|item| item.ident == "Op" || item.ident == "Fusion" || item.ident == "FusedKind");
    enums.flat_map(|item| &item.variants).map(|variant| snake_case(&variant.ident.to_string())).collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_after_operations() {
        let op = TextFile {
            path: "crates/ops/src/op.rs".into(),
            text: "enum Op { Linear(u8), RmsNorm {} }".into(),
        };
        let fusion =
            TextFile { path: "crates/ops/src/f.rs".into(), text: "enum Fusion { AddRmsNorm }".into() };
        let rust = [&op, &fusion].map(|file| RustFile::parse(file).unwrap().unwrap());
        let check = |path: &str, expected: usize| {
            let texts = [TextFile { path: path.to_owned(), text: String::new() }];
            assert_eq!(stems(&rust, &texts).len(), expected, "{path}");
        };
        check("crates/backend-cpu/src/kernels/linear.rs", 0);
        check("crates/backend-cuda/src/kernels/rms_norm.cu", 0);
        check("crates/backend-cpu/src/kernels/add_rms_norm.rs", 0);
        check("crates/backend-cpu/src/kernels/linear/tiles.rs", 0);
        check("crates/backend-cpu/src/kernels/mod.rs", 0);
        check("crates/backend-cpu/src/kernels/matmul.rs", 1);
        check("crates/backend-cpu/src/kernels/matmul/tiles.rs", 1);
        check("crates/backend-cpu/src/threads.rs", 0);
    }
}
