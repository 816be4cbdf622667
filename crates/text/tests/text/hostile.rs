//! Files and templates from strangers: whatever is in them, they load or are refused, and nothing panics.

use crate::fixture;
use crate::kinds::base64;
use gannet_text::chat::{ChatTemplate, Message, RenderOptions};
use gannet_text::decode::SpecialTokens;
use gannet_text::error::TextError;
use gannet_text::gguf::{self, GgufVocabulary};
use gannet_text::tokenizer::{Specials, Tokenizer, TokenizerConfig};
use proptest::prelude::*;
use serde_json::{Value, json};

const TEXT: &str = "a b <s></s> é ﬁ\u{200B}Ａ 日本 🦀 \u{FF1C}/s\u{FF1E} 12 [CLS]▁\u{AD}\n";

/// A tokenizer that loaded must work.
fn use_it(tokenizer: &Tokenizer) {
    for specials in [Specials::Parse, Specials::AsText] {
        let ids = tokenizer.encode(TEXT, specials).unwrap_or_default();
        assert!(ids.iter().all(|&id| tokenizer.token_bytes(id).is_some()));
        tokenizer.decode(&ids, SpecialTokens::Show);
    }
    tokenizer.encode_prompt(TEXT).unwrap_or_default();
}

/// Overwrites, cuts and repeats bytes.
fn damaged(bytes: &[u8], places: &[(usize, u8)], cut: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, byte) in places {
        let place = place % bytes.len();
        bytes[place] = *byte;
    }
    bytes.truncate(bytes.len() - cut.min(bytes.len()));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_sentencepiece_models_load_or_are_refused(
        places in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        cut in prop_oneof![Just(0_usize), 0..3000_usize],
        which in 0..3_usize,
    ) {
        let name = ["unigram", "unigram-bytes", "bpe-mapped"][which];
        let model = damaged(&fixture::bytes(&format!("kinds/{name}.model")), &places, cut);
        if let Ok(tokenizer) = Tokenizer::from_sentencepiece(&model, &TokenizerConfig::default()) {
            use_it(&tokenizer);
        }
    }

    #[test]
    fn damaged_maps_of_characters_are_followed_safely_or_refused(
        places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        first in any::<Option<[u8; 4]>>(),
        cut in 0..40_usize,
    ) {
        let mut vocabulary = fixture::vocabulary(&fixture::read("kinds/unigram"));
        let mut map = damaged(&vocabulary.precompiled_charsmap, &places, cut);
        if let Some(length) = first {
            map[..4].copy_from_slice(&length);
        }
        vocabulary.precompiled_charsmap = map;
        if let Ok(tokenizer) = gguf::tokenizer(vocabulary) {
            use_it(&tokenizer);
        }
    }

    #[test]
    fn any_bytes_are_a_model_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let config = TokenizerConfig::from_json(br#"{"tokenizer_class": "QWenTokenizer"}"#).unwrap();
        for loaded in [
            Tokenizer::from_sentencepiece(&bytes, &TokenizerConfig::default()),
            Tokenizer::from_tiktoken(&bytes, &config),
            Tokenizer::from_json(&bytes, &TokenizerConfig::default()),
        ] {
            loaded.iter().for_each(use_it);
        }
    }

    #[test]
    fn any_ranked_tokens_are_a_vocabulary_or_refused(
        tokens in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 0..40),
        swap in any::<bool>(),
    ) {
        let ranks = (0..tokens.len()).map(|rank| if swap { tokens.len() - rank } else { rank });
        let lines: String =
            tokens.iter().zip(ranks).map(|(token, rank)| format!("{} {rank}\n", base64(token))).collect();
        let config = TokenizerConfig::from_json(br#"{"tokenizer_class": "QWenTokenizer"}"#).unwrap();
        if let Ok(tokenizer) = Tokenizer::from_tiktoken(lines.as_bytes(), &config) {
            use_it(&tokenizer);
        }
    }

    #[test]
    fn any_metadata_is_a_vocabulary_or_refused(
        kind in prop_oneof![Just("gpt2"), Just("llama"), Just("bert"), Just("t5")],
        tokens in prop::collection::vec("\\PC{0,4}", 0..30),
        kinds in prop::collection::vec(0..8_i32, 0..30),
        scores in prop::collection::vec(any::<f32>(), 0..30),
        merges in prop::collection::vec("[ab ]{0,4}", 0..4),
        ids in prop::collection::vec(prop::option::of(0..40_u32), 7),
    ) {
        let vocabulary = GgufVocabulary {
            model: kind.to_owned(),
            pre: Some("default".to_owned()),
            scores: (0..tokens.len()).filter_map(|at| scores.get(at).copied()).collect(),
            token_types: (0..tokens.len()).filter_map(|at| kinds.get(at).copied()).collect(),
            tokens,
            merges,
            bos: ids[0],
            eos: ids[1],
            unknown: ids[2],
            cls: ids[3],
            separator: ids[4],
            mask: ids[5],
            padding: ids[6],
            ..GgufVocabulary::default()
        };
        if let Ok(tokenizer) = gguf::tokenizer(vocabulary) {
            use_it(&tokenizer);
        }
    }

    #[test]
    fn any_template_renders_or_fails(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "{%", "%}", "{#", "#}", "-", "if ", "else", "endif", "for x in ", "endfor", "set x = ", "raw",
                "endraw", "generation", "endgeneration", "macro m(x)", "endmacro", "'%s'", " % ", "'a'", "\"", "'", "(", ")",
                "[", "]", "{", "}", "messages", ".content", "|tojson", "|format(", "1", "x", "m(x)", ",", "é", "\\", "\n",
                " ~ ", "loop.index", "range(9)", ".split('a')", "[::-1]", "|int", "none", "*",
            ]),
            0..40,
        ),
    ) {
        let tokenizer = gguf::tokenizer(fixture::vocabulary(&fixture::read("smollm"))).unwrap();
        if let Ok(template) = ChatTemplate::new(&words.concat(), &tokenizer) {
            let options = RenderOptions { boundaries: true, ..RenderOptions::default() };
            let rendered = template.render(&[Message::new("user", "<|im_end|> a")], &[], &options);
            rendered.iter().for_each(|rendered| {
                tokenizer.encode_chat_with_boundaries(rendered).unwrap();
            });
        }
    }
}

/// Whole templates.
const STATEMENTS: &[&str] = &[
    "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(x) %}{{ f(x + x) }}{% endmacro %}{{ f([1]) }}",
    "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = f(ns.x) %}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "{% for x in [[1]] recursive %}{{ loop(x + x) }}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
    "{% set ns = namespace() %}{% set ns.x = {'a': ns} %}{{ ns == ns.x }}",
    "{% set ns = namespace() %}{% set ns.x = dict(a=ns) %}{{ ns.x | tojson }}",
    "{% set ns = namespace(a=namespace()) %}{% set ns.a.x = ns %}{{ ns }}",
    "{% for x in [1, 2] %}{{ [loop, loop] }}{% endfor %}",
    "{% set x = 'ab' * 4000000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'abcdefghij' * 1000 }}{% endfor %}{% endset %}{{ x | length }}",
    "{% set x = [1] * 400000 %}{% set y = [1] * 400000 %}{% for i in range(99999) %}{% if x == y %}{% endif %}{% endfor %}",
    "{% set x = [1] * 400000 %}{% for i in range(99999) %}{% if loop.changed(x) %}{% endif %}{% endfor %}",
    "{% set x = [1] * 400000 %}{% for i in range(9999) %}{{ loop.cycle(x, x) | length }}{% endfor %}",
    "{% set x = [1] * 400000 %}{% set a, b = x, x %}{% with c = [x, x] %}{% with d = [c, c] %}{{ d == d[:] }}{% endwith %}{% endwith %}",
    "{% filter upper %}{% for i in range(999999) %}{{ 'x' * 99999 }}{% endfor %}{% endfilter %}",
    "{% autoescape true %}{% set ns = namespace(x='<') %}{% for i in range(99) %}{% set ns.x = ns.x | e ~ ns.x %}{% endfor %}{% endautoescape %}",
    "{% set ns = namespace(a=1) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=1) %}{% for i in range(99999) %}{% set ns.a = {'a': ns.a} %}{% endfor %}{{ ns.a }}",
    "{% call f() %}{% endcall %}{% macro f() %}{{ caller() }}{{ f() }}{% endmacro %}{{ f() }}",
];

/// Values that are too large, or cost too much.
const VALUES: &[&str] = &[
    "('\\n' * 8000000) | indent(256)",
    "('\\n' * 500000) | indent('x' * 256)",
    "'x' * 1000000000000",
    "1000000000000 * 'x'",
    "[1] * 1000000000000",
    "(1, 2) * 100000000",
    "(1, 2) * 10000000",
    "[[[[1] * 100000000] * 100000000] * 100000000]",
    "range(1000000000000) | list",
    "range(1000000000000) | string",
    "range(99999999) ~ ''",
    "range(99999999) | join(',')",
    "range(9999999) | tojson",
    "range(9999999) | sort",
    "[range(99999), range(99999)] * 99999",
    "'x' | indent(1000000000000)",
    "[[1]] | tojson(indent=1000000000000)",
    "[1] * 400000 | tojson(separators=('x' * 1000000, 'x' * 1000000))",
    "'%1000000000000d' % 1",
    "'%1000000000s' | format('a')",
    "'%.1000000000f' | format(1.5)",
    "'%*d' | format(1000000000, 1)",
    "'{:1000000000000}'.format(1)",
    "'{:.1000000000f}'.format(1.5)",
    "'{:{}}'.format(1, 1000000000)",
    "('{0}' * 99999).format('x' * 8000000)",
    "('%s' * 9) | format('x' * 8000000, 'x' * 8000000)",
    "10 ** 10 ** 10 ** 10",
    "'x'.zfill(1000000000000)",
    "'x'.ljust(1000000000000)",
    "'x'.rjust(1000000000000)",
    "'\t'.expandtabs(1000000000000)",
    "('\t' * 8000000).expandtabs(1000)",
    "('a' * 8000000).split('a')",
    "('a ' * 4000000).split()",
    "('a ' * 4000000).rsplit()",
    "('a\n' * 4000000).splitlines()",
    "('a' * 8000000) | split('a')",
    "('a ' * 4000000) | split",
    "('a\n' * 4000000) | lines",
    "('a' * 8000000) | list",
    "('a' * 8000000) | batch(2)",
    "('a' * 8000000) | sort",
    "('a' * 8000000) | unique",
    "('a' * 8000000) | map('upper') | list",
    "('a' * 8000000)[::-1] | list",
    "('a' * 8000000) | reverse | list",
    "('a' * 4000).replace('a', 'a' * 4000)",
    "('a' * 8000000).replace('a', 'a' * 8000000)",
    "('a' * 8000000) | replace('a', 'a' * 8000000)",
    "('a' * 8000000).replace('', 'a' * 8000000)",
    "('a' * 8000000).join(['x'] * 400000)",
    "['x'] * 400000 | join('a' * 8000000)",
    "('<' * 8000000) | e | e",
    "[1] | batch(1000000000, 0) | list",
    "[1] | slice(1000000000) | list",
    "[1] | slice(9000000, 0) | list",
    "[[1]] * 400000 | sum(start=[])",
    "['x' * 10] * 200000 | sum(start='')",
    "[[1] * 400000] * 9 | map('list') | list",
    "['a' * 1000000] * 8 | map('replace', 'a', 'a' * 100) | list",
    "[1] | zip(range(99999999)) | list",
    "[range(99999999)] | chain(range(99999999)) | list",
    "('{' * 100000).format()",
    "debug()",
    "'İ' * 2000000 | lower | upper",
    "('ß' * 4000000).upper().upper()",
    "('x' * 8000000).title().swapcase()",
];

/// Steps from a list to a larger one.
const STEPS: &[&str] = &[
    "ns.x + ns.x",
    "ns.x * 2",
    "ns.x * 3 + ns.x",
    "[ns.x, ns.x]",
    "(ns.x, ns.x)",
    "{'a': ns.x, 'b': ns.x}",
    "dict(a=ns.x, b=ns.x)",
    "ns.x[:] + ns.x[::-1]",
    "ns.x | list + ns.x | list",
    "[ns.x] * 9 | list",
    "[ns.x, ns.x] | map('list') | list",
    "ns.x | chain(ns.x)",
    "ns.x | zip(ns.x) | list",
    "[ns.x, ns.x] | first + ns.x",
    "[ns.x] | batch(9, ns.x) | list",
    "[ns.x] | slice(9, ns.x) | list",
    "[ns.x, ns.x] | groupby(0) | list",
    "ns.x | select + ns.x | select",
    "[ns.x] + [ns.x]",
    "{'a': [ns.x, ns.x]}.items() | list",
    "[ns.x if 1 else 0] * 2",
    "[[ns.x, ns.x]] | sum(start=[])",
    "ns.x | default(ns.x) + ns.x",
    "[ns.x, ns.x] | sort | unique | list",
];

/// Steps from a text to a larger one.
const TEXT_STEPS: &[&str] = &[
    "ns.x ~ ns.x",
    "ns.x + ns.x",
    "ns.x * 9",
    "(ns.x * 9).upper()",
    "[ns.x] * 9 | join",
    "ns.x.replace('a', ns.x)",
    "ns.x | replace('a', ns.x)",
    "'%s%s' % (ns.x, ns.x)",
    "'{}{}'.format(ns.x, ns.x)",
    "ns.x | indent(200)",
    "ns.x.join([ns.x, ns.x, ns.x])",
    "[ns.x, ns.x] | string",
    "[ns.x, ns.x] | tojson",
    "ns.x | urlencode | urlencode",
    "ns.x | list | join(ns.x)",
    "ns.x.split('a') | join(ns.x)",
    "{ns.x: ns.x} | string",
    "ns.x | pprint * 2",
    "ns.x | e | e + '<'",
    "ns.x.center(1000) ~ ns.x",
    "(ns.x, ns.x) ~ ''",
];

/// What costs as much as its value is large.
const WORKS: &[&str] = &[
    "x == x[:]",
    "x in [x[:]]",
    "x < x[:]",
    "x is eq(x[:])",
    "x | sort",
    "x | unique | list",
    "x | string",
    "x ~ ''",
    "x | join",
    "x | select('eq', x) | list",
    "x.index(2)",
    "x.count(2)",
    "x | tojson",
    "{x: 1}",
    "x | max",
    "x | map('string') | list",
    "'%s' | format(x)",
    "'{}'.format(x)",
    "x | pprint",
    "not x[::-1]",
    "x | list",
    "x | groupby('a')",
    "[x, x][0] != x[:]",
    "x | last",
    "x | length",
    "x[-1]",
];

/// Templates that try to use up memory or time, each by another way.
fn greedy_templates() -> Vec<String> {
    let doubled = |first: &str, step: &str, last: &str| {
        format!(
            "{{% set ns = namespace(x={first}) %}}{{% for i in range(99) %}}{{% set ns.x = {step} %}}{{% endfor %}}{last}"
        )
    };
    let often = |first: &str, step: &str| {
        let loops = "{% for i in range(99999) %}";
        format!("{{% set x = {first} %}}{loops}{{% if {step} %}}{{% endif %}}{{% endfor %}}")
    };
    let mut templates: Vec<String> = STATEMENTS.iter().map(|text| (*text).to_owned()).collect();
    templates.extend(VALUES.iter().map(|value| format!("{{{{ {value} | length }}}}")));
    templates.extend(VALUES.iter().map(|value| format!("{{% set x = {value} %}}{{{{ x }}}}")));
    templates.extend(STEPS.iter().map(|step| doubled("[1]", step, "{{ ns.x | string | length }}")));
    templates.extend(TEXT_STEPS.iter().map(|step| doubled("'aab<'", step, "{{ ns.x }}")));
    templates.extend(WORKS.iter().map(|step| often("[[[1] * 60] * 60] * 60", step)));
    templates.extend(WORKS.iter().map(|step| often("'ab' * 3000000", step)));
    templates.extend([
        "{% if 1 %}".repeat(5000),
        "{{ ".to_owned() + &"(".repeat(100_000),
        "{{ ".to_owned() + &"-".repeat(100_000) + "1 }}",
        "{{ x".to_owned() + &".x".repeat(100_000) + " }}",
        "{{ 'x'".to_owned() + &"|upper".repeat(100_000) + " }}",
        "{{ 1".to_owned() + &" + 1".repeat(100_000) + " }}",
        "{{ ".to_owned() + &"[".repeat(50_000) + &"]".repeat(50_000) + " }}",
        "{{ ".to_owned() + &"'%s' % (".repeat(3000) + "1" + &")".repeat(3000) + " }}",
        "{{ ('x' * 99999999) | length }}".repeat(1000),
        "{{ 'x' * 1000 }}".repeat(30_000),
    ]);
    templates
}

fn rendered(tokenizer: &Tokenizer, source: &str) -> Result<String, TextError> {
    let template = ChatTemplate::new(source, tokenizer)?;
    template
        .render(&[Message::new("user", "x")], &[], &RenderOptions::default())
        .map(|rendered| rendered.text)
}

fn small_tokenizer() -> Tokenizer {
    gguf::tokenizer(fixture::vocabulary(&fixture::read("smollm"))).unwrap()
}

#[test]
fn what_a_template_can_make_grow_is_limited() {
    let tokenizer = small_tokenizer();
    let long = rendered(&tokenizer, &("{{ x".to_owned() + &".x".repeat(3000) + " }}")).unwrap_err();
    assert_eq!(
        long.to_string(),
        "the length of one tag of the chat template in bytes is 6007, above the limit of 4096"
    );
    let printed = rendered(&tokenizer, &"{{ 'a' * 4194000 }}".repeat(3)).unwrap_err().to_string();
    assert!(
        printed.contains("prints") && printed.contains("12582000, above the limit of 8388608"),
        "{printed}"
    );
    let captured =
        "{% set x = 'a' * 4194000 %}{% for i in range(9) %}{% set y %}{{ x }}{% endset %}{% endfor %}";
    let captured = rendered(&tokenizer, captured).unwrap_err().to_string();
    assert!(
        captured.contains("into its own variables") && captured.contains("above the limit of 33554432"),
        "{captured}"
    );
    // A text may be as long as it likes.
    assert_eq!(rendered(&tokenizer, &format!("{{{{ '{}' | length }}}}", "x".repeat(9000))).unwrap(), "9000");
    // Padding is capped, not refused: Python would pad.
    assert_eq!(rendered(&tokenizer, "{{ 'x'.center(1000000000000) | length }}").unwrap(), "1024");
}

/// Set in the process that renders greedy templates, which the shell has limited.
const LIMITED: &str = "GANNET_TEST_LIMITED";
/// Address space of that process, in KiB: 256 MiB above what it has anyway.
#[cfg(unix)]
const MEMORY_KIB: u32 = 400 << 10;

#[cfg(unix)]
#[test]
fn greedy_templates_end_within_limits_of_memory() {
    let program = std::env::current_exe().unwrap();
    let limited =
        format!("ulimit -v {MEMORY_KIB}; exec \"$0\" --exact hostile::greedy_templates_end --nocapture");
    let output = std::process::Command::new("sh")
        .args(["-c", &limited])
        .arg(program)
        .env(LIMITED, "1")
        // The allocator of the C library would reserve address space for each thread.
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let (said, fault) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{said}\n{fault}", output.status);
    assert!(said.contains(&format!("{} templates ended", greedy_templates().len())), "{said}");
}

#[test]
fn greedy_templates_end() {
    if std::env::var_os(LIMITED).is_none() {
        return;
    }
    let tokenizer = small_tokenizer();
    for source in greedy_templates() {
        let label: String = source.chars().take(160).collect();
        let ended = rendered(&tokenizer, &source);
        let what = match &ended {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.to_string(),
        };
        println!("{label}: {what}");
        if let Ok(text) = ended {
            assert!(text.len() < 1 << 23, "{label}: {} bytes", text.len());
        }
    }
    println!("{} templates ended", greedy_templates().len());
}

/// The paths of all small parts of `value`, as JSON pointers.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(entries) if entries.len() < 60 => {
            entries.iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => {
            items.iter().take(3).enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in entries {
        pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
    }
}

fn unigram_json() -> Value {
    let fixture = fixture::read("kinds/unigram");
    let mut file = fixture["json"].clone();
    let pieces = fixture["gguf"]["tokens"].as_array().unwrap().iter();
    let scores = fixture["gguf"]["scores"].as_array().unwrap();
    file["model"]["vocab"] = pieces.zip(scores).map(|(piece, score)| json!([piece, score])).collect();
    file
}

#[test]
fn word_piece_and_unigram_files_with_any_part_replaced_load_or_are_refused() {
    let replacements = [
        json!(null),
        json!(-1),
        json!(99_999_999_999_u64),
        json!(""),
        json!("##"),
        json!([[]]),
        json!(["a", "b"]),
        json!({"type": "Replace", "pattern": {"Regex": "(a*)*$"}, "content": "x"}),
        json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    ];
    for sound in [fixture::read("kinds/bert")["tokenizer_json"].take(), unigram_json()] {
        let mut paths = Vec::new();
        pointers(&sound, "", &mut paths);
        for path in &paths {
            for replacement in &replacements {
                let mut file = sound.clone();
                *file.pointer_mut(path).unwrap() = replacement.clone();
                let file = serde_json::to_vec(&file).unwrap();
                Tokenizer::from_json(&file, &TokenizerConfig::default()).iter().for_each(use_it);
            }
        }
    }
}

#[test]
fn what_would_take_too_much_is_refused_by_its_limit() {
    let limit = |result: Result<Tokenizer, TextError>| match result {
        Err(TextError::TooLarge { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let base = || fixture::vocabulary(&fixture::read("kinds/unigram"));
    let long = GgufVocabulary { precompiled_charsmap: vec![0; (1 << 22) + 1], ..base() };
    assert_eq!(limit(gguf::tokenizer(long)), "the precompiled map's length in bytes");
    let mut pieces = base();
    pieces.tokens.extend((0..20_000).map(|number| format!("{number:01000}")));
    pieces.scores.resize(pieces.tokens.len(), -9.0);
    pieces.token_types.resize(pieces.tokens.len(), 1);
    assert_eq!(limit(gguf::tokenizer(pieces)), "the length of all pieces in bytes");
    let mut cuts = fixture::vocabulary(&fixture::read("llama"));
    cuts.tokens.extend((0..600).map(|number| format!("{number:01000}")));
    cuts.scores.resize(cuts.tokens.len(), -9.0);
    cuts.token_types.resize(cuts.tokens.len(), 1);
    assert_eq!(limit(gguf::tokenizer(cuts)), "the work of cutting all tokens in bytes");
    let mut words = fixture::read("kinds/bert")["tokenizer_json"].take();
    words["model"]["max_input_chars_per_word"] = json!(1_000_000);
    let words = serde_json::to_vec(&words).unwrap();
    let words = Tokenizer::from_json(&words, &TokenizerConfig::default());
    assert_eq!(limit(words), "model.max_input_chars_per_word");
}

#[test]
fn faults_of_the_new_kinds_are_named() {
    let check = |change: &dyn Fn(&mut GgufVocabulary), name: &str, message: &str| {
        let mut vocabulary = fixture::vocabulary(&fixture::read(name));
        change(&mut vocabulary);
        assert_eq!(gguf::tokenizer(vocabulary).unwrap_err().to_string(), message);
    };
    check(
        &|it| it.scores[7] = f32::NAN,
        "kinds/unigram",
        "`the score of token 7` is `NaN`, expected a finite number",
    );
    check(
        &|it| it.scores.clear(),
        "kinds/unigram",
        "`tokenizer.ggml.scores` is `nothing`, expected a list of scores, one a token",
    );
    check(
        &|it| it.mask = Some(99_999),
        "kinds/bert",
        "`tokenizer.ggml.mask_token_id` is 99999, but the vocabulary has 700 tokens",
    );
    check(
        &|it| it.precompiled_charsmap = vec![255; 9],
        "kinds/unigram",
        "the precompiled map of characters is damaged: its trie is longer than the map",
    );
    let model = fixture::bytes("kinds/unigram.model");
    let refusal = |bytes: &[u8]| {
        Tokenizer::from_sentencepiece(bytes, &TokenizerConfig::default()).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&model[..model.len() - 1]),
        format!(
            "`tokenizer.model` is no SentencePiece model: a field goes on behind the end of its message at byte {}",
            model.len() - last_field_length(&model)
        )
    );
    assert_eq!(refusal(b""), "`tokenizer.model` is no SentencePiece model: there is no piece at byte 0");
    assert_eq!(
        refusal(b"\x0A\x03\x0A\x01\xFF"),
        "`tokenizer.model` is no SentencePiece model: a piece is no UTF-8 at byte 4"
    );
}

/// Bytes of the value of a model's last field.
fn last_field_length(model: &[u8]) -> usize {
    let (mut at, mut last) = (0, 0);
    let varint = |at: &mut usize| {
        let mut value = 0_usize;
        for shift in (0..).step_by(7) {
            let byte = model[*at];
            *at += 1;
            value |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    while at < model.len() {
        assert_eq!(varint(&mut at) & 7, 2, "every field of a model is a message");
        last = varint(&mut at);
        at += last;
    }
    last
}
