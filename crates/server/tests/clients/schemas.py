"""The committed schemas through a running server, checked from outside: `schemas.py BASE_URL MODEL COUNT`.

COUNT of the 300, evenly picked, at temperature 1 with a fixed seed each and 512 tokens at most. An answer that ends by
`stop` parses and validates (`jsonschema`); one that ends by `length` is the beginning of a fitting one, as llguidance's own
matcher says of its bytes; a refusal names the keyword's path. At least 60 in 100 of those asked end by `stop`, and fewer
than 10 in 100 are refused.
"""

import asyncio
import collections
import json
import pathlib
import sys

import jsonschema
import jsonschema._keywords
import jsonschema._utils
import llguidance
import openai
import regex

BASE, MODEL, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
SCHEMAS = pathlib.Path(__file__).resolve().parents[3] / "grammar/tests/data/schemas.json"
TOKENS, AT_ONCE = 512, 8
LEAST_ENDED, MOST_REFUSED = 0.6, 0.1
PATH = "response_format.json_schema.schema"
UNKNOWN_FORMAT = regex.compile(r"Unknown format: ([\w.-]+)")
# Patterns of schemas are ECMAScript's; Python's own expressions know no `\\p`.
jsonschema._keywords.re = jsonschema._utils.re = regex


def picked():
    schemas = json.loads(SCHEMAS.read_text())
    assert COUNT <= len(schemas), (COUNT, len(schemas))
    return [(place, schemas[place]) for place in (number * len(schemas) // COUNT for number in range(COUNT))]


def schema_of(entry):
    return entry["schema"] if set(entry) >= {"name", "schema"} else entry


async def ask(client, place, schema):
    named = {"name": f"schema_{place}", "schema": schema, "strict": True}
    messages = [{"role": "user", "content": "Answer with a JSON value that fits the schema."}]
    answer = await client.chat.completions.create(
        model=MODEL, messages=messages, temperature=1, seed=place, max_tokens=TOKENS,
        response_format={"type": "json_schema", "json_schema": named},
    )
    return answer.choices[0].finish_reason, answer.choices[0].message.content


def check_whole(schema, text):
    value = json.loads(text)
    checker = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    checker(schema).validate(value)


def without_format(schema, name):
    """A schema without one of its formats; names that a matcher doesn't know are notes for readers."""
    if isinstance(schema, list):
        return [without_format(value, name) for value in schema]
    if not isinstance(schema, dict):
        return schema
    is_left_out = lambda key, value: key == "format" and value == name
    return {key: without_format(value, name) for key, value in schema.items() if not is_left_out(key, value)}


def matcher_of(schema):
    while True:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": True})
        matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
        if not matcher.is_error():
            return matcher
        unknown = UNKNOWN_FORMAT.search(matcher.get_error())
        assert unknown, matcher.get_error()
        schema = without_format(schema, unknown[1])


def check_beginning(schema, text):
    matcher = matcher_of(schema)
    # What follows the last whole character may be cut, and is not part of the text.
    tokens = list(text.encode())
    assert matcher.validate_tokens(tokens) == len(tokens), "the matcher refuses it"


async def one(client, turn, place, schema):
    async with turn:
        try:
            reason, text = await ask(client, place, schema)
        except openai.BadRequestError as error:
            assert error.param.startswith(PATH), error
            assert len(error.param) > len(PATH) or "schema" in error.message, error
            return "refused"
    if reason == "stop":
        check_whole(schema, text)
    else:
        assert reason == "length", reason
        check_beginning(schema, text)
    return reason


async def guarded(client, turn, place, schema):
    try:
        return await one(client, turn, place, schema)
    except Exception as error:
        print(f"FAILED  schema {place}: {type(error).__name__}: {str(error)[:300]}")
        return "wrong"


async def main():
    turn = asyncio.Semaphore(AT_ONCE)
    async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0, timeout=600) as client:
        work = (guarded(client, turn, place, schema_of(entry)) for place, entry in picked())
        counts = collections.Counter(await asyncio.gather(*work))
    print(f"{COUNT} schemas: " + ", ".join(f"{count} {reason}" for reason, count in counts.most_common()))
    assert counts["wrong"] == 0
    assert counts["stop"] >= LEAST_ENDED * (COUNT - counts["refused"]), "too few end by themselves"
    assert counts["refused"] < MOST_REFUSED * COUNT or COUNT < 100, "too many are refused"


asyncio.run(main())
