"""The same checkpoint by transformers and by Gannet on the card: how many of 8 prompts have the same 64 greedy tokens.

beside.py MODEL float32|bfloat16
"""

import random
import sys

import torch
from serve import Server
from transformers import AutoModelForCausalLM

PROMPTS, TOKENS = 8, 64


def main(model, precision):
    generator = random.Random(8)
    prompts = [[generator.randrange(1000, 150000) for _ in range(9 + 17 * place)] for place in range(PROMPTS)]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision)).cuda().eval()
    expected = []
    with torch.no_grad():
        for prompt in prompts:
            # Step by step without a cache of keys: nothing of it can differ from the formula.
            ids = torch.tensor([prompt]).cuda()
            for _ in range(TOKENS):
                ids = torch.cat([ids, theirs(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
            expected.append(ids[0, len(prompt) :].tolist())
    del theirs
    torch.cuda.empty_cache()
    same, agreed = 0, 0
    server = Server(model)
    with server as ask:
        name = server.name()
        for prompt, tokens in zip(prompts, expected):
            body = {"model": name, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
            found = ask(body | {"return_token_ids": True})["choices"][0]["token_ids"]
            same += found == tokens
            agreed += next((n for n, (a, b) in enumerate(zip(found, tokens)) if a != b), TOKENS)
    print(f"{precision}: {same} of {PROMPTS} prompts have the same {TOKENS} tokens, {agreed} of {PROMPTS * TOKENS} before the first that differs")
    return 0 if same == PROMPTS or precision != "float32" else 1


sys.exit(main(*sys.argv[1:]))
