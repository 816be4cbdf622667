//! Sizes and headers: a `//!` header on each Rust file, and walls for files, functions and parameters.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::{RustFile, TextFile};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const FAMILY_FILE_LINES_MAX: usize = 200;
const SHADER_LINES_MAX: usize = 600;
const PARAMETERS_MAX: usize = 7;

/// Where the tables of the model families lie.
pub(super) const FAMILIES: &str = "crates/model/src/families/";

/// Each Rust file opens with what it is.
pub(super) fn header(file: &RustFile<'_>) -> Vec<Finding> {
    if file.text.starts_with("//!") {
        return vec![];
    }
    vec![Finding::new("header", file.path, "the file has to open with a `//!` header that says what it is")]
}

/// Code lines without tests, blank lines and comments.
pub(super) fn file_length(file: &RustFile<'_>) -> Vec<Finding> {
    let code = file.lines_without_tests().map(|(_, line)| line.trim());
    let lines = code.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    let wall = if file.path.starts_with(FAMILIES) { FAMILY_FILE_LINES_MAX } else { FILE_LINES_MAX };
    if lines <= wall {
        return vec![];
    }
    vec![Finding::new(
        "file-length",
        file.path,
        format!("{lines} code lines without tests, at most {wall}: split it"),
    )]
}

/// Kernels in the languages of devices.
pub(super) fn shader_length(file: &TextFile) -> Vec<Finding> {
    let lines = file.text.lines().count();
    let shader = file.path.ends_with(".cu") || file.path.ends_with(".wgsl");
    if !shader || lines <= SHADER_LINES_MAX {
        return vec![];
    }
    vec![Finding::new(
        "file-length",
        &file.path,
        format!("{lines} lines, at most {SHADER_LINES_MAX}: split it"),
    )]
}

/// From the line of `fn` to the closing brace.
pub(super) fn function_length(file: &RustFile<'_>) -> Vec<Finding> {
    let long = functions(file).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    let finding = |function: Function| {
        let message = format!("{} lines, at most {FUNCTION_LINES_MAX}: name its parts", function.lines);
        Finding::new("function-length", format!("{}::{}", file.path, function.name), message)
    };
    long.map(finding).collect()
}

/// `self` counts.
pub(super) fn parameters(file: &RustFile<'_>) -> Vec<Finding> {
    let wide = functions(file).into_iter().filter(|function| function.parameters > PARAMETERS_MAX);
    let finding = |function: Function| {
        let message = format!("{} parameters, at most {PARAMETERS_MAX}: pass a struct", function.parameters);
        Finding::new("parameters", format!("{}::{}", file.path, function.name), message)
    };
    wide.map(finding).collect()
}

struct Function {
    name: String,
    lines: usize,
    parameters: usize,
}

#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, last: proc_macro2::Span) {
        let lines = last.end().line + 1 - signature.fn_token.span.start().line;
        self.0.push(Function {
            name: signature.ident.to_string(),
            lines,
            parameters: signature.inputs.len(),
        });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add(&function.sig, function.span());
        visit::visit_trait_item_fn(self, function);
    }
}

fn functions(file: &RustFile<'_>) -> Vec<Function> {
    let mut found = Functions::default();
    found.visit_file(&file.syntax);
    found.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which places a rule finds in a file of this text.
    fn check(rule: fn(&RustFile<'_>) -> Vec<Finding>, path: &str, text: &str, places: &[&str]) {
        let file = RustFile::from_text(path, text).unwrap();
        let found: Vec<String> = rule(&file).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, places, "{path}\n{text}");
    }

    fn repeat(line: &str, times: usize) -> String {
        format!("{line}\n").repeat(times)
    }

    #[test]
    fn a_rust_file_opens_with_its_header() {
        check(header, "a.rs", "//! What it is.\n", &[]);
        check(header, "a.rs", "// What it is.\n", &["a.rs"]);
        check(header, "a.rs", "use std::fmt;\n//! late\n".split("//!").next().unwrap(), &["a.rs"]);
        check(header, "a.rs", "", &["a.rs"]);
    }

    #[test]
    fn file_length_counts_code_outside_tests() {
        let code = repeat("const A: u8 = 0;", 600);
        check(file_length, "a.rs", &code, &[]);
        check(file_length, "a.rs", &format!("{code}const B: u8 = 0;"), &["a.rs"]);
        check(file_length, "a.rs", &format!("{code}\n\n// A comment.\n"), &[]);
        check(file_length, "a.rs", &format!("{code}#[cfg(test)]\nmod tests {{\nuse super::*;\n}}\n"), &[]);
        check(file_length, "a.rs", &format!("{code}#[cfg(unix)]\nmod unix {{\n}}\n"), &["a.rs"]);
        check(file_length, "crates/x/tests/a.rs", &repeat("const A: u8 = 0;", 900), &[]);
    }

    #[test]
    fn family_files_have_a_lower_wall() {
        let path = "crates/model/src/families/a.rs";
        check(file_length, path, &repeat("const A: u8 = 0;", 200), &[]);
        check(file_length, path, &repeat("const A: u8 = 0;", 201), &[path]);
    }

    #[test]
    fn functions_are_measured_wherever_they_are() {
        let body = |lines: usize| repeat("    let _ = 1;", lines);
        check(function_length, "a.rs", &format!("fn f() {{\n{}}}\n", body(68)), &[]);
        check(function_length, "a.rs", &format!("fn f() {{\n{}}}\n", body(69)), &["a.rs::f"]);
        check(function_length, "a.rs", &format!("/// Docs.\n#[inline]\nfn f() {{\n{}}}\n", body(68)), &[]);
        check(
            function_length,
            "a.rs",
            &format!("impl A {{ fn f(&self) {{\n{}}} }}\n", body(69)),
            &["a.rs::f"],
        );
        check(function_length, "a.rs", &format!("trait A {{ fn f() {{\n{}}} }}\n", body(69)), &["a.rs::f"]);
        check(function_length, "a.rs", &format!("mod m {{ fn f() {{\n{}}} }}\n", body(69)), &["a.rs::f"]);
    }

    #[test]
    fn eight_parameters_are_too_many() {
        let seven = "a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8";
        check(parameters, "a.rs", &format!("fn f({seven}) {{}}"), &[]);
        check(parameters, "a.rs", &format!("fn f({seven}, h: u8) {{}}"), &["a.rs::f"]);
        check(parameters, "a.rs", &format!("impl A {{ fn f(&self, {seven}) {{}} }}"), &["a.rs::f"]);
        check(parameters, "a.rs", &format!("trait A {{ fn f(&self, {seven}); }}"), &["a.rs::f"]);
    }

    #[test]
    fn long_shaders_are_found() {
        let check = |path: &str, lines: usize, expected: usize| {
            let file = TextFile { path: path.to_owned(), text: repeat("x", lines) };
            assert_eq!(shader_length(&file).len(), expected, "{path} with {lines} lines");
        };
        check("a.cu", 600, 0);
        check("a.cu", 601, 1);
        check("a.wgsl", 601, 1);
        check("a.json", 9000, 0);
    }
}
