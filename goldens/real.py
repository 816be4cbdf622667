"""What transformers computes, in float32 and from dequantised weights, for the two real models on real/text.txt.

    cargo xtask goldens            together with the other goldens
    python real.py [NAME ...]      smollm2, gemma3 (a few minutes on two cores)

Each `real/NAME.reference.safetensors` holds

    text_ids      int32    [text tokens]   the whole text, without a begin-of-text id
    ids           int32    [2001]          the first ids, begin-of-text first where the tokenizer adds one
    argmax        int32    [2000]          the likeliest next id after ids[..= i]
    top_ids       int32    [2000, 5]       the five likeliest, likeliest first
    top_logprobs  float32  [2000, 5]       their log-probabilities, nats
    margin        float32  [2000]          nats between the first and the second
    perplexity    float32  [1]             of the whole text, as `PERPLEXITY` says, which the metadata repeats
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import twins
from make import save

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
TEACHER_FORCED = 2000
WINDOW = 512
TOP = 5
HEAD_ROWS = 256  # Rows whose logits are held at once: 256 x 262,144 floats are 268 MB.
PERPLEXITY = (
    f"the text's ids are cut into consecutive windows of {WINDOW} tokens, counting the begin-of-text id that is put "
    "before each window where the tokenizer adds one; the last window may be shorter, and is left out if nothing in "
    "it is predicted; each window is evaluated from scratch; exp of the mean negative log-likelihood of all tokens "
    "of all windows but the first of each"
)
CONTROL, USER_DEFINED, BYTE = 3, 4, 6  # Token types of GGUF.


@dataclass
class Real:
    """A model file as transformers and tokenizers see it."""

    model: torch.nn.Module
    tokenizer: Tokenizer
    bos: int | None


def metadata(reader):
    """All metadata as a dict."""
    return {key: field.contents() for key, field in reader.fields.items()}


def llama_config(facts):
    return {
        "model_type": "llama",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": True,
    }


def gemma3_config(facts):
    return {
        "model_type": "gemma3_text",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["gemma3.embedding_length"],
        "intermediate_size": facts["gemma3.feed_forward_length"],
        "num_hidden_layers": facts["gemma3.block_count"],
        "num_attention_heads": facts["gemma3.attention.head_count"],
        "num_key_value_heads": facts["gemma3.attention.head_count_kv"],
        "head_dim": facts["gemma3.attention.key_length"],
        "query_pre_attn_scalar": facts["gemma3.attention.key_length"],
        "max_position_embeddings": facts["gemma3.context_length"],
        "sliding_window": facts["gemma3.attention.sliding_window"],
        "rms_norm_eps": facts["gemma3.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["gemma3.rope.freq_base"],
        "rope_local_base_freq": 10000.0,
        "tie_word_embeddings": True,
    }


def byte_level_tokenizer(facts):
    """Byte-level BPE with every digit by itself: the kind `gpt2`, split `smollm`."""
    tokens, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == CONTROL])
    return tokenizer


def score_merge_tokenizer(facts):
    """BPE whose merges are every split of a piece into two pieces, best score first, with bytes for the rest: the
    kind `llama` without a space put in front."""
    tokens, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    scores = facts["tokenizer.ggml.scores"]
    vocab = {token: id for id, token in enumerate(tokens)}
    merges = []
    for id, token in enumerate(tokens):
        if types[id] not in (CONTROL, BYTE):
            splits = [(token[:at], token[at:]) for at in range(1, len(token))]
            known = [(vocab[left], vocab[right], left, right) for left, right in splits if left in vocab and right in vocab]
            merges += [(-scores[id], id, order, pair[2:]) for order, pair in enumerate(sorted(known))]
    merges.sort(key=lambda merge: merge[:3])
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab, merges=[pair for *_, pair in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(?!)"), "merged_with_previous")
    whole = [token for token, kind in zip(tokens, types) if kind == USER_DEFINED]
    tokenizer.add_tokens([AddedToken(token, normalized=True, special=False) for token in whole])
    return tokenizer


KINDS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", transformers.LlamaForCausalLM, llama_config, byte_level_tokenizer),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", transformers.Gemma3ForCausalLM, gemma3_config, score_merge_tokenizer),
}


def load(name):
    """The float32 model of dequantised weights, and its tokenizer."""
    file, model_class, make_config, make_tokenizer = KINDS[name]
    reader = gguf.GGUFReader(MODELS / file)
    facts = metadata(reader)
    config = make_config(facts)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    plain = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        model = model_class._from_config(model_class.config_class(**plain), attn_implementation="eager")
    state = {}
    for hub_name in model.state_dict():
        if hub_name != "lm_head.weight":
            tensor = stored.pop(twins.gguf_name(config, hub_name))
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
            state[hub_name] = twins.from_gguf(config, hub_name, values)
    if stored:
        raise SystemExit(f"{file}: tensors without a place: {sorted(stored)}")
    model = model_class._from_config(model.config, attn_implementation="eager").eval()
    model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
    bos = facts["tokenizer.ggml.bos_token_id"] if facts["tokenizer.ggml.add_bos_token"] else None
    return Real(model, make_tokenizer(facts), bos)


def log_probabilities(real, ids):
    """Log-probabilities after each id, in pieces of [rows, vocabulary] to save memory."""
    with torch.no_grad():
        hidden = real.model.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]
        for rows in hidden.split(HEAD_ROWS):
            yield torch.log_softmax(real.model.lm_head(rows), dim=-1)


def teacher_forced(real, ids):
    """The likeliest next tokens after each prefix of `ids`."""
    tops = [piece.topk(TOP) for piece in log_probabilities(real, ids)]
    values, top_ids = torch.cat([top.values for top in tops]), torch.cat([top.indices for top in tops])
    return {
        "argmax": top_ids[:, 0].to(torch.int32).contiguous(),
        "top_ids": top_ids.to(torch.int32),
        "top_logprobs": values,
        "margin": (values[:, 0] - values[:, 1]).contiguous(),
    }


def perplexity(real, text_ids):
    """As `PERPLEXITY` says; also how many tokens were predicted."""
    start = [] if real.bos is None else [real.bos]
    step = WINDOW - len(start)
    total, count = 0.0, 0
    for at in range(0, len(text_ids), step):
        window = start + text_ids[at : at + step]
        scores = torch.cat(list(log_probabilities(real, window)))
        chosen = scores[:-1].gather(1, torch.tensor(window[1:], dtype=torch.int64)[:, None])
        total -= float(chosen.double().sum())
        count += len(window) - 1
    return math.exp(total / count), count


def make(name):
    real = load(name)
    text_ids = real.tokenizer.encode((HERE / "real" / "text.txt").read_text(), add_special_tokens=False).ids
    ids = ([] if real.bos is None else [real.bos]) + text_ids
    ids = ids[: TEACHER_FORCED + 1]
    tensors = {"ids": torch.tensor(ids, dtype=torch.int32), "text_ids": torch.tensor(text_ids, dtype=torch.int32)}
    tensors |= teacher_forced(real, ids[:-1])
    value, predicted = perplexity(real, text_ids)
    tensors["perplexity"] = torch.tensor([value], dtype=torch.float32)
    facts = {
        "model": KINDS[name][0],
        "reference": f"transformers {transformers.__version__}, float32, eager, dequantised weights",
        "perplexity": PERPLEXITY,
        "perplexity_window": WINDOW,
        "perplexity_predicted": predicted,
    }
    save(HERE / "real" / f"{name}.reference.safetensors", tensors, {"facts": json.dumps(facts)})
    print(f"{name}: {len(text_ids)} text tokens, perplexity {value:.4f} over {predicted} predictions")


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or KINDS:
        make(name)
