"""Chat through the sandbox: plain, streamed, asynchronous."""

import asyncio

import openai

MODEL = "sandbox-1"
MESSAGES = [{"role": "user", "content": "Name three rivers, please."}]


def chunks_of(stream):
    return [chunk for chunk in stream]


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_chat_answers_with_text_and_usage(client):
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)

    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0
    assert answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_same_question_has_the_same_answer(client):
    first, second = (client.chat.completions.create(model=MODEL, messages=MESSAGES) for _ in range(2))

    assert first.choices[0].message.content == second.choices[0].message.content


def test_the_reply_can_be_dictated(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, extra_headers={"X-Sandbox-Reply": "exactly this"}
    )

    assert answer.choices[0].message.content == "exactly this"


def test_the_answer_says_who_served_it_and_where_it_is_logged(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)

    assert raw.headers["X-Gateway-Provider"] == "sandbox"
    assert int(raw.headers["X-Gateway-Log-Id"]) > 0


def test_a_stream_comes_in_pieces_and_ends(client):
    chunks = chunks_of(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))

    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"


def test_a_stream_says_the_same_as_the_plain_answer(client):
    plain = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    chunks = chunks_of(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))

    assert text_of(chunks) == plain.choices[0].message.content


def test_usage_is_in_a_stream_only_when_asked_for(client):
    silent = chunks_of(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    asked = chunks_of(
        client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    )

    assert all(chunk.choices and chunk.usage is None for chunk in silent)
    assert asked[-1].choices == []
    assert asked[-1].usage.total_tokens > 0


def test_the_asynchronous_client_streams_too(settings):
    async def ask():
        async with openai.AsyncOpenAI(**settings) as client:
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            return [chunk async for chunk in stream]

    assert text_of(asyncio.run(ask()))
