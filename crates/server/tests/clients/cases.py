"""The official clients against a running server: `cases.py BASE_URL MODEL VECTORS`.

Each case is a function; its name is the behaviour. The exit code is the number of cases that failed.
"""

import asyncio
import base64
import json
import math
import pathlib
import struct
import sys
import traceback

import anthropic
import openai

BASE, MODEL, VECTORS = sys.argv[1:4]
HERE = pathlib.Path(__file__).parent
KEY = "not-looked-at"
client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
claude = anthropic.Anthropic(base_url=BASE, api_key=KEY, max_retries=0)
USER = [{"role": "user", "content": "What is the capital of France?"}]
CASES = []


# The client of messages has no argument for a temperature any more; the protocol has.
GREEDY = {"temperature": 0}


def case(function):
    CASES.append(function)
    return function


def chat(**more):
    given = {"model": MODEL, "messages": USER, "max_tokens": 24, "temperature": 0}
    return client.chat.completions.create(**{**given, **more})


def eagerly(work):
    """Runs `work` with a client of its own, since connections belong to their event loop."""

    async def run():
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0) as eager:
            return await work(eager)

    return asyncio.run(run())


def complete(**more):
    given = {"model": MODEL, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    return client.completions.create(**{**given, **more})


def refused(kind, call, *, param=None, code=None):
    try:
        call()
    except kind as error:
        assert param is None or error.param == param, (error.param, param)
        assert code is None or error.code == code, (error.code, code)
        return error
    raise AssertionError(f"expected {kind.__name__}")


@case
def models_are_listed():
    assert MODEL in [model.id for model in client.models.list()]


@case
def a_model_is_found():
    assert client.models.retrieve(MODEL).id == MODEL


@case
def an_unknown_model_is_not_found():
    refused(openai.NotFoundError, lambda: client.models.retrieve("absent"), code="model_not_found")
    refused(openai.NotFoundError, lambda: chat(model="absent"), code="model_not_found")


@case
def a_chat_is_answered():
    answer = chat()
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


@case
def a_greedy_answer_is_the_same_each_time():
    assert chat().choices[0].message.content == chat().choices[0].message.content


@case
def a_second_request_finds_its_prompt_known():
    long = [{"role": "user", "content": "Say yes. " * 60}]
    chat(messages=long, max_tokens=2)
    assert chat(messages=long, max_tokens=2).usage.prompt_tokens_details.cached_tokens >= 64


@case
def a_stream_says_the_same():
    chunks = list(chat(stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == chat().choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


@case
def a_stream_ends_with_usage():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage == chat().usage.model_copy(
        update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}
    )
    assert all(chunk.usage is None for chunk in chunks[:-1])


@case
def the_streaming_helper_works():
    with client.chat.completions.stream(model=MODEL, messages=USER, max_tokens=24, temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == chat().choices[0].message.content


@case
def the_limit_of_tokens_is_a_reason():
    assert chat(max_tokens=2).choices[0].finish_reason == "length"
    assert chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=2).usage.completion_tokens == 2


@case
def a_stop_string_is_not_part_of_the_answer():
    answer = chat(stop=["Paris"])
    assert "Paris" not in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


@case
def several_answers_differ():
    answer = chat(n=3, temperature=1.5, seed=1)
    assert sorted(choice.index for choice in answer.choices) == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1


@case
def several_answers_are_streamed():
    texts = {}
    for chunk in chat(n=2, temperature=1.5, seed=1, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    whole = chat(n=2, temperature=1.5, seed=1)
    assert texts == {choice.index: choice.message.content for choice in whole.choices}


@case
def a_seed_repeats_an_answer():
    one, two, other = (chat(temperature=1.2, seed=seed).choices[0].message.content for seed in (5, 5, 6))
    assert one == two != other


@case
def log_probabilities_come_with_rivals():
    content = chat(logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs.content
    assert len(content) == 4
    for token in content:
        assert token.top_logprobs[0].logprob == token.logprob < 0
        assert bytes(token.bytes).decode() == token.token


@case
def a_bias_forbids_a_token():
    first = chat(max_tokens=1, extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    other = chat(max_tokens=1, logit_bias={str(first): -100}, extra_body={"return_token_ids": True})
    assert other.choices[0].token_ids[0] != first


@case
def extensions_of_the_field_are_known():
    more = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 4, "ignore_eos": True, "timings": True}
    answer = chat(temperature=0.5, seed=1, max_tokens=6, extra_body=more)
    assert answer.usage.completion_tokens == 6
    assert answer.timings["generated_tokens"] == 6


@case
def a_conversation_of_all_roles_is_answered():
    messages = [
        {"role": "developer", "content": "You are brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
    ]
    assert chat(messages=messages).choices[0].message.content


@case
def raw_responses_carry_an_id():
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=USER, max_tokens=1)
    assert raw.headers["x-request-id"].startswith("req_")
    assert raw.parse().choices[0].finish_reason == "length"


@case
def an_async_client_is_served():
    async def many(eager):
        tasks = [
            eager.chat.completions.create(model=MODEL, messages=USER, max_tokens=8, temperature=0) for _ in range(8)
        ]
        return await asyncio.gather(*tasks)

    answers = [answer.choices[0].message.content for answer in eagerly(many)]
    assert set(answers) == {chat(max_tokens=8).choices[0].message.content}


@case
def a_stream_that_is_left_does_no_harm():
    for _ in range(5):
        with chat(stream=True, max_tokens=500, extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
    assert chat(max_tokens=2).usage.completion_tokens == 2


@case
def a_completion_is_made():
    answer = complete()
    assert "Paris" in answer.choices[0].text
    assert answer.object == "text_completion"


@case
def a_completion_is_streamed():
    assert "".join(chunk.choices[0].text for chunk in complete(stream=True)) == complete().choices[0].text


@case
def completions_take_lists():
    answer = complete(prompt=["One, two,", "A, B,"], n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[0].text == answer.choices[1].text


@case
def completions_take_token_ids():
    ids = client.post("/tokenize", cast_to=object, body={"model": MODEL, "prompt": "The capital of France is"})["tokens"]
    assert complete(prompt=ids).choices[0].text == complete().choices[0].text


@case
def a_completion_echoes():
    assert complete(echo=True).choices[0].text == "The capital of France is" + complete().choices[0].text


@case
def a_completion_has_log_probabilities():
    found = complete(logprobs=2).choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == len(found.text_offset) == 8
    assert "".join(found.tokens) == complete().choices[0].text


@case
def wrong_values_are_bad_requests():
    for field, value in [("temperature", 9), ("n", 0), ("top_p", 7), ("max_tokens", -1), ("presence_penalty", 5)]:
        refused(openai.BadRequestError, lambda: chat(**{field: value}), param=field)


@case
def what_is_not_supported_is_named():
    refused(openai.BadRequestError, lambda: complete(suffix="x"), param="suffix", code="unsupported_parameter")
    refused(openai.BadRequestError, lambda: chat(store=True), param="store", code="unsupported_parameter")
    refused(openai.BadRequestError, lambda: chat(extra_body={"bogus": 1}), param="bogus", code="unknown_parameter")
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    messages = [{"role": "user", "content": [image]}]
    refused(openai.BadRequestError, lambda: chat(messages=messages), param="messages[0].content[0]")


@case
def a_prompt_beyond_the_context_is_refused():
    messages = [{"role": "user", "content": "word " * 20_000}]
    refused(openai.BadRequestError, lambda: chat(messages=messages), code="context_length_exceeded")


@case
def a_response_is_made():
    response = client.responses.create(model=MODEL, input="Say hi.", max_output_tokens=24, temperature=0)
    assert response.output_text and response.usage.output_tokens > 0
    assert client.responses.retrieve(response.id).output_text == response.output_text


@case
def a_response_is_streamed():
    whole = client.responses.create(model=MODEL, input="Say hi.", max_output_tokens=24, temperature=0)
    events = list(client.responses.create(model=MODEL, input="Say hi.", max_output_tokens=24, temperature=0, stream=True))
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text == events[-1].response.output_text


@case
def a_response_goes_on_from_another():
    first = client.responses.create(model=MODEL, input="My name is Ann.", max_output_tokens=16, temperature=0)
    second = client.responses.create(
        model=MODEL, input="What is my name?", previous_response_id=first.id, max_output_tokens=16, temperature=0
    )
    assert second.usage.input_tokens > first.usage.input_tokens
    client.responses.delete(first.id)
    refused(openai.NotFoundError, lambda: client.responses.retrieve(first.id))


@case
def a_message_is_answered():
    message = claude.messages.create(model=MODEL, messages=USER, max_tokens=24, extra_body=GREEDY)
    assert message.content[0].text == chat().choices[0].message.content
    assert message.stop_reason in ("end_turn", "max_tokens")


@case
def a_message_is_streamed():
    with claude.messages.stream(model=MODEL, messages=USER, max_tokens=24, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == chat().choices[0].message.content
    assert final.usage.output_tokens > 0


@case
def a_messages_system_counts():
    plain = claude.messages.count_tokens(model=MODEL, messages=USER).input_tokens
    assert claude.messages.count_tokens(model=MODEL, messages=USER, system="Be brief. " * 9).input_tokens != plain


@case
def a_messages_stop_sequence_is_named():
    message = claude.messages.create(
        model=MODEL, messages=USER, max_tokens=24, extra_body=GREEDY, stop_sequences=["Paris"]
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Paris")


@case
def a_wrong_message_is_a_bad_request():
    for more in [{"max_tokens": 0}, {"extra_body": {"temperature": 9}}, {"messages": []}]:
        given = {"model": MODEL, "messages": USER, "max_tokens": 4, **more}
        refused(anthropic.BadRequestError, lambda: claude.messages.create(**given))
    refused(anthropic.NotFoundError, lambda: claude.messages.create(model="absent", messages=USER, max_tokens=4))


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
NOW = {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": tool} for tool in (WEATHER, NOW)]
ONE_CALL = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 120}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def fits(text):
    """Whether a text is a city of the schema."""
    found = json.loads(text)
    assert set(found) == {"city", "people"} and isinstance(found["people"], int), found
    return found


def is_weather(arguments):
    found = json.loads(arguments)
    assert set(found) == {"city", "unit"} and found["unit"] in ("C", "F"), found


def says(**more):
    return chat(max_tokens=120, **more).choices[0].message.content


@case
def an_answer_follows_a_schema():
    answer = chat(response_format=FORMAT, max_tokens=120)
    fits(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"


@case
def several_answers_follow_a_schema():
    answer = chat(response_format=FORMAT, max_tokens=120, n=3, temperature=1, seed=1)
    for choice in answer.choices:
        if choice.finish_reason == "stop":
            fits(choice.message.content)


@case
def a_streamed_answer_follows_a_schema():
    chunks = chat(response_format=FORMAT, max_tokens=120, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert fits(text) == fits(says(response_format=FORMAT))


@case
def a_model_of_pydantic_is_parsed():
    import pydantic

    class City(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=20)
        people: int

    answer = client.chat.completions.parse(
        model=MODEL, messages=USER, response_format=City, max_tokens=120, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, City)


@case
def an_answer_is_some_object():
    answer = chat(response_format={"type": "json_object"}, max_tokens=60)
    text = answer.choices[0].message.content
    assert text.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


@case
def the_fields_names_for_grammars_are_known():
    assert says(extra_body={"guided_choice": ["red", "blue"]}) in ("red", "blue")
    assert says(extra_body={"guided_regex": "[0-9]{4}"}).isdigit()
    assert says(extra_body={"guided_grammar": 'start: "a" "b"+ "c"'})[:2] == "ab"
    fits(says(extra_body={"guided_json": SCHEMA}))
    fits(says(extra_body={"structured_outputs": {"json": SCHEMA}}))
    assert says(extra_body={"structured_outputs": {"regex": "x{3}"}}) == "xxx"


@case
def a_completion_follows_a_form():
    assert complete(extra_body={"guided_choice": [" Paris", " Rome"]}).choices[0].text in (" Paris", " Rome")
    fits(complete(max_tokens=120, extra_body={"guided_json": SCHEMA}).choices[0].text)


@case
def a_wrong_schema_is_told_by_its_place():
    wrong = {"type": "object", "properties": {"a": {"type": "strange"}}}
    wrong = {"type": "json_schema", "json_schema": {"name": "n", "schema": wrong}}
    place = "response_format.json_schema.schema.properties.a"
    refused(openai.BadRequestError, lambda: chat(response_format=wrong), param=place, code="invalid_request")
    deep = {"type": "object"}
    for _ in range(200):
        deep = {"items": deep}
    refused(openai.BadRequestError, lambda: chat(extra_body={"guided_json": deep}))
    refused(openai.BadRequestError, lambda: chat(extra_body={"guided_regex": "("}), param="guided_regex")


@case
def a_required_tool_is_called():
    choice = chat(**ONE_CALL).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert len(choice.message.tool_calls) == 1
    assert choice.message.tool_calls[0].function.name in ("get_weather", "now")
    json.loads(choice.message.tool_calls[0].function.arguments)


@case
def a_named_tool_is_called_with_arguments_of_its_schema():
    call = chat(**{**ONE_CALL, "tool_choice": NAMED}).choices[0].message.tool_calls[0]
    assert call.type == "function" and call.id.startswith("call_") and call.function.name == "get_weather"
    is_weather(call.function.arguments)


@case
def an_allowed_tool_is_called():
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    calls = chat(**{**ONE_CALL, "tool_choice": choice}).choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["now"]


@case
def tools_that_may_be_called_leave_an_answer_free():
    answer = chat(tools=TOOLS, tool_choice="auto").choices[0]
    assert answer.message.content or answer.message.tool_calls
    assert chat(tools=TOOLS, tool_choice="none").choices[0].message.tool_calls is None


@case
def a_streamed_calls_arguments_only_grow():
    name, text, pieces = None, "", 0
    for chunk in chat(**{**ONE_CALL, "tool_choice": NAMED}, stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            name = name or call.function.name
            text += call.function.arguments or ""
            pieces += 1
    assert name == "get_weather" and pieces > 3
    is_weather(text)
    assert chunk.choices[0].finish_reason == "tool_calls"


@case
def the_streaming_helper_gathers_calls():
    given = {**ONE_CALL, "tool_choice": NAMED}
    with client.chat.completions.stream(model=MODEL, messages=USER, temperature=0, **given) as stream:
        kinds = {event.type for event in stream}
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "tool_calls.function.arguments.delta" in kinds
    is_weather(call.function.arguments)


@case
def a_conversation_goes_on_from_a_call():
    call = chat(**{**ONE_CALL, "tool_choice": NAMED}).choices[0].message
    result = {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "Rain, 9 degrees"}
    messages = [*USER, call.model_dump(exclude_none=True), result]
    assert chat(messages=messages, tools=TOOLS, tool_choice="none").choices[0].message.content


@case
def wrong_tools_are_refused():
    for given, param in [
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [TOOLS[0]] * 300}, "tools"),
    ]:
        refused(openai.BadRequestError, lambda: chat(**given), param=param)


@case
def an_async_client_calls_tools():
    async def call(eager):
        given = {**ONE_CALL, "tool_choice": NAMED}
        return await eager.chat.completions.create(model=MODEL, messages=USER, temperature=0, **given)

    is_weather(eagerly(call).choices[0].message.tool_calls[0].function.arguments)


@case
def an_async_stream_is_read():
    async def read(eager):
        stream = await eager.chat.completions.create(
            model=MODEL, messages=USER, max_tokens=24, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert eagerly(read) == chat().choices[0].message.content


def respond(**more):
    return client.responses.create(model=MODEL, **{"input": "Say hi.", "max_output_tokens": 120, "temperature": 0, **more})


FLAT = {"type": "function", "strict": True, **WEATHER}
CALLS = {"tools": [FLAT], "tool_choice": {"type": "function", "name": "get_weather"}, "parallel_tool_calls": False}


@case
def a_response_follows_a_schema():
    text = {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA, "strict": True}}
    fits(respond(text=text).output_text)


@case
def a_response_calls_a_tool_and_goes_on():
    first = respond(**CALLS)
    [call] = first.output
    assert call.type == "function_call" and call.name == "get_weather"
    is_weather(call.arguments)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain"}
    second = respond(input=[output], previous_response_id=first.id, tools=[FLAT], tool_choice="none")
    assert second.output_text
    told = [{"role": "user", "content": "Say hi."}, call.model_dump(exclude_none=True), output]
    assert respond(input=told, tools=[FLAT], tool_choice="none").output_text == second.output_text


@case
def a_streamed_response_calls_a_tool():
    events = list(respond(stream=True, **CALLS))
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert len(deltas) > 3 and "".join(deltas) == done[0].arguments
    is_weather(done[0].arguments)
    assert events[-1].response.output[0].arguments == done[0].arguments
    assert [event.sequence_number for event in events] == list(range(len(events)))


@case
def a_response_is_made_in_the_background():
    import time

    made = respond(background=True)
    while made.status == "in_progress":
        time.sleep(0.05)
        made = client.responses.retrieve(made.id)
    assert made.output_text == respond().output_text


OWN_TOOL = {"name": "get_weather", "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
USE = {"tools": [OWN_TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}, "extra_body": GREEDY}


@case
def a_message_uses_a_tool():
    message = claude.messages.create(model=MODEL, messages=USER, max_tokens=120, **USE)
    assert message.stop_reason == "tool_use"
    [block] = message.content
    assert block.type == "tool_use" and block.name == "get_weather" and set(block.input) == {"city", "unit"}
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "Rain"}
    messages = [*USER, {"role": "assistant", "content": [block.model_dump()]}, {"role": "user", "content": [result]}]
    more = {"tools": [OWN_TOOL], "tool_choice": {"type": "none"}, "extra_body": GREEDY}
    assert claude.messages.create(model=MODEL, messages=messages, max_tokens=24, **more).content[0].text


@case
def a_streamed_message_uses_a_tool():
    with claude.messages.stream(model=MODEL, messages=USER, max_tokens=120, **USE) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert len(pieces) > 3 and set(final.content[0].input) == {"city", "unit"}
    assert final.stop_reason == "tool_use"


@case
def a_messages_tools_count():
    plain = claude.messages.count_tokens(model=MODEL, messages=USER).input_tokens
    assert claude.messages.count_tokens(model=MODEL, messages=USER, tools=[OWN_TOOL]).input_tokens > plain


@case
def wrong_tools_of_a_message_are_refused():
    for more in [{"tool_choice": {"type": "any"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}]:
        given = {"model": MODEL, "messages": USER, "max_tokens": 4, **more}
        refused(anthropic.BadRequestError, lambda: claude.messages.create(**given))


def embed(**more):
    return client.embeddings.create(model=VECTORS, **{"input": "A cat sleeps.", **more})


@case
def texts_become_vectors_of_unit_length():
    answer = embed(input=["A cat sleeps.", "A kitten naps.", "Stocks fell sharply."])
    vectors = [item.embedding for item in answer.data]
    assert [item.index for item in answer.data] == [0, 1, 2]
    for vector in vectors:
        assert abs(math.hypot(*vector) - 1) < 1e-5
    near, far = (sum(a * b for a, b in zip(vectors[0], vector)) for vector in vectors[1:])
    assert near > far
    assert answer.usage.prompt_tokens > 0


@case
def vectors_are_the_same_in_every_form():
    plain = embed(encoding_format="float").data[0].embedding
    coded = embed(encoding_format="base64").data[0].embedding
    assert list(struct.unpack(f"<{len(plain)}f", base64.b64decode(coded))) == [
        struct.unpack("<f", struct.pack("<f", number))[0] for number in plain
    ]
    ids = client.post("/tokenize", cast_to=object, body={"model": VECTORS, "prompt": "A cat sleeps."})["tokens"]
    assert embed(input=ids, encoding_format="float").data[0].embedding == plain
    assert embed(input=[ids, ids], encoding_format="float").data[1].embedding == plain
    cut = embed(dimensions=16, encoding_format="float").data[0].embedding
    length = math.hypot(*plain[:16])
    assert all(abs(a - b / length) < 1e-5 for a, b in zip(cut, plain, strict=False))


@case
def wrong_vectors_are_refused():
    refused(openai.BadRequestError, lambda: embed(dimensions=100_000), param="dimensions")
    refused(openai.BadRequestError, lambda: embed(input=""), param="input")
    refused(openai.BadRequestError, lambda: client.embeddings.create(model=MODEL, input="a"), param="model")
    refused(openai.BadRequestError, lambda: chat(model=VECTORS), param="model")


@case
def an_async_client_embeds():
    async def vector(eager):
        return await eager.embeddings.create(model=VECTORS, input="A cat sleeps.")

    assert eagerly(vector).data[0].embedding == embed().data[0].embedding


@case
def an_echo_has_the_scores_of_the_prompt():
    ids = client.post("/tokenize", cast_to=object, body={"model": MODEL, "prompt": "The capital of France is"})["tokens"]
    found = complete(prompt=ids, echo=True, logprobs=1, max_tokens=1).choices[0].logprobs
    assert found.token_logprobs[0] is None and len(found.tokens) == len(ids) + 1
    assert all(score < 0 for score in found.token_logprobs[1:])
    alone = complete(prompt=ids, echo=True, logprobs=1, max_tokens=0).choices[0].logprobs
    assert alone.token_logprobs == found.token_logprobs[:-1]


@case
def the_scores_of_a_prompt_come_by_token_id():
    answer = chat(extra_body={"prompt_logprobs": 2, "return_token_ids": True})
    assert answer.prompt_logprobs[0] is None
    for token, entries in list(zip(answer.prompt_token_ids, answer.prompt_logprobs))[1:]:
        assert entries[str(token)]["logprob"] < 0


@case
def log_likelihoods_are_those_of_transformers():
    lines = (HERE / "harness/likelihoods.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    answer = complete(prompt=[case["tokens"] for case in cases], echo=True, logprobs=1, max_tokens=1)
    for choice, case in zip(answer.choices, cases, strict=True):
        scores = choice.logprobs.token_logprobs[case["context_tokens"] : len(case["tokens"])]
        found, expected = sum(scores), case["loglikelihood"]
        assert abs(found - expected) < 0.01, (found, expected)
        likeliest = [max(top, key=top.get) for top in choice.logprobs.top_logprobs[case["context_tokens"] : -1]]
        is_greedy = likeliest == choice.logprobs.tokens[case["context_tokens"] : -1]
        assert is_greedy == case["is_greedy"], case


def main():
    failed = 0
    for function in CASES:
        try:
            function()
            print(f"passed  {function.__name__}")
        except Exception:
            failed += 1
            print(f"FAILED  {function.__name__}")
            traceback.print_exc()
    print(f"{len(CASES) - failed} of {len(CASES)} cases passed")
    sys.exit(min(failed, 100))


main()
