"""lm-eval's `local-completions` against a running server of SmolLM2: `check.py BASE_URL MODEL`.

The documents are likelihoods.jsonl, which `goldens/likelihoods.py` writes with transformers. Texts are made into ids by the
server's own routes. Each log-likelihood must be transformers' to 0.01.
"""

import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import lm_eval
from lm_eval.api.task import ConfigurableTask

BASE, MODEL = sys.argv[1:3]
DOCUMENTS = pathlib.Path(__file__).parent / "likelihoods.jsonl"
TOLERANCE = 0.01


class Task(ConfigurableTask):
    VERSION = 1

    def __init__(self):
        super().__init__(config={
            "task": "gannet_likelihoods",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(DOCUMENTS)}},
            "output_type": "loglikelihood",
            "test_split": "test",
            "doc_to_text": "{{context}}",
            "doc_to_target": "{{continuation}}",
            "target_delimiter": "",
            "metric_list": [{"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}],
        })


def main():
    arguments = {"model": MODEL, "base_url": BASE + "/v1/completions", "tokenizer_backend": "remote",
                 "num_concurrent": 4, "max_retries": 1}
    found = lm_eval.simple_evaluate(
        model="local-completions", model_args=arguments, tasks=[Task()], batch_size=4, log_samples=True, verbosity="WARNING"
    )
    samples, worst = found["samples"]["gannet_likelihoods"], 0.0
    assert len(samples) == len(DOCUMENTS.read_text().splitlines())
    for sample in samples:
        (total, is_greedy), document = sample["filtered_resps"][0], sample["doc"]
        difference = abs(float(total) - document["loglikelihood"])
        assert difference < TOLERANCE, (total, document)
        assert str(is_greedy) == str(document["is_greedy"]), document
        worst = max(worst, difference)
    print(f"{len(samples)} log-likelihoods are transformers', the largest difference is {worst:.5f}")


main()
