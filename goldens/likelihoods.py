"""The log-likelihoods of continuations by transformers, in float32 and from dequantised weights, for SmolLM2.

    cargo xtask goldens        together with the other goldens
    python likelihoods.py      crates/server/tests/clients/harness/likelihoods.jsonl

Each line is a document of the task `gannet_likelihoods` of lm-eval: a context, a continuation, the ids of both together
and how many of them are the context's, the sum of the log-probabilities of the continuation's ids (nats), and whether
each of them is the likeliest one.
"""

import json

import real

OUT = real.HERE.parent / "crates/server/tests/clients/harness/likelihoods.jsonl"
PAIRS = [
    ("The capital of France is", " Paris"),
    ("The capital of France is", " a large city on the river Seine, and the seat of its government."),
    ("The opposite of hot is", " cold"),
    ("Water freezes at", " 0 degrees Celsius."),
    ("Two plus two is", " four"),
    ("The cat sat on the", " mat"),
    ("The cat sat on the", " sofa and looked out of the window at the birds in the garden"),
    ("def add(a, b):\n    return", " a + b"),
    ("for index in range(10):\n    print(", "index)"),
    ("Q: What is the largest planet of the solar system?\nA:", " Jupiter"),
    ("Q: What is the largest planet of the solar system?\nA:", " Saturn"),
    ("Q: Who wrote Hamlet?\nA:", " William Shakespeare"),
    ("Q: How many legs has a spider?\nA:", " Eight"),
    ("Q: How many legs has a spider?\nA:", " Six"),
    ("Roses are red, violets are", " blue"),
    ("Once upon a time there was a", " little girl who lived in a village near the forest."),
    ("The sun rises in the east and sets in the", " west"),
    ("Plants make sugar from light, water and", " carbon dioxide"),
    ("An apple a day keeps the doctor", " away"),
    ("He opened the door, looked around, and said:", " \"Nobody is here.\""),
    ("1, 2, 3, 4, 5, 6,", " 7, 8, 9, 10"),
    ("2023-01-31, 2023-02-28, 2023-03-31,", " 2023-04-30"),
    ("{\"name\": \"Ann\", \"age\":", " 31}"),
    ("<html>\n<head>\n<title>", "Home</title>"),
    ("La capitale de la France est", " Paris."),
    ("Der Himmel ist", " blau."),
    ("東京は日本の", "首都です"),
    ("Emoji:", " 🙂🚀"),
    ("SELECT name FROM users WHERE", " id = 1;"),
    ("It was a dark and stormy night; the rain fell in", " torrents"),
    ("To be, or not to be, that is the", " question"),
    ("Dear Sir or Madam,\n\nI am writing to", " complain about the service that I received last week."),
]


def main():
    model = real.load("smollm2")
    ids_of = lambda text: model.tokenizer.encode(text, add_special_tokens=False).ids
    lines = []
    for context, continuation in PAIRS:
        tokens, start = ids_of(context + continuation), len(ids_of(context))
        scores = real.torch.cat(list(real.log_probabilities(model, tokens)))[start - 1 : -1]
        wanted = real.torch.tensor(tokens[start:])
        total = float(scores.gather(1, wanted[:, None]).double().sum())
        is_greedy = bool((scores.argmax(dim=1) == wanted).all())
        case = {"context": context, "continuation": continuation, "tokens": tokens, "context_tokens": start,
                "loglikelihood": round(total, 5), "is_greedy": is_greedy}
        lines.append(json.dumps(case, ensure_ascii=False) + "\n")
    OUT.write_text("".join(lines))
    print(f"{OUT.name}: {len(lines)} continuations")


main()
