"""The official clients against a running server: `cases.py BASE_URL MODEL`.

Each case is a function; its name is the behaviour. The exit code is the number of cases that failed.
"""

import asyncio
import sys
import traceback

import anthropic
import openai

BASE, MODEL = sys.argv[1], sys.argv[2]
KEY = "not-looked-at"
client = openai.OpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
eager = openai.AsyncOpenAI(base_url=BASE + "/v1", api_key=KEY, max_retries=0)
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
    async def many():
        tasks = [
            eager.chat.completions.create(model=MODEL, messages=USER, max_tokens=8, temperature=0) for _ in range(8)
        ]
        return await asyncio.gather(*tasks)

    answers = [answer.choices[0].message.content for answer in asyncio.run(many())]
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
    ids = client.post("/tokenize", cast_to=object, body={"prompt": "The capital of France is"})["tokens"]
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
