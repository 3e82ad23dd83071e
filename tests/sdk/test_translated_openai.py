"""The OpenAI SDK against providers of every format: chat completions, responses, embeddings, models."""

import json

import openai
import pytest
from conftest import UPSTREAMS

QUESTION = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_weather", "description": "Current weather", "parameters": SCHEMA}
CITIES = [{"city": "Paris"}, {"city": "Rome"}]
# Without a format the request is forwarded unchanged.
CHAT = [(name, "openai") for name in UPSTREAMS] + [("openai", None), ("groq", None)]
RESPONSES = [(name, "openai-responses") for name in UPSTREAMS] + [("openai", None)]


def chat_messages():
    return [{"role": "user", "content": "The weather in Paris and Rome?"}]


def usage_of(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


@pytest.mark.parametrize(("upstream", "shape"), CHAT)
class TestChat:
    @pytest.fixture
    def model(self, upstream):
        return UPSTREAMS[upstream][1]

    @pytest.fixture
    def client(self, world, upstream, shape):
        with world.openai(UPSTREAMS[upstream][0], shape) as client:
            yield client

    def test_text(self, client, model):
        answer = client.chat.completions.create(model=model, messages=QUESTION)

        assert (answer.object, answer.choices[0].message.role) == ("chat.completion", "assistant")
        assert answer.choices[0].message.content == "Grüße aus Zürich"
        assert answer.choices[0].finish_reason == "stop"
        assert usage_of(answer.usage) == (25, 12, 37)

    def test_a_stream(self, client, model):
        options = {"include_usage": True}
        stream = client.chat.completions.create(
            model=model, messages=QUESTION, stream=True, stream_options=options
        )
        chunks = list(stream)

        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert "".join(piece or "" for piece in pieces) == "Grüße aus Zürich"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert usage_of(chunks[-1].usage) == (25, 12, 37)

    def test_a_cut_answer(self, client, model):
        answer = client.chat.completions.create(model=model, messages=QUESTION, max_completion_tokens=16)

        assert answer.choices[0].finish_reason == "length"

    def test_tools_and_their_results(self, client, model, world, upstream):
        tools = [{"type": "function", "function": TOOL}]
        messages = chat_messages()
        answer = client.chat.completions.create(model=model, messages=messages, tools=tools)
        message = answer.choices[0].message

        assert answer.choices[0].finish_reason == "tool_calls"
        assert [call.function.name for call in message.tool_calls] == ["get_weather"] * 2
        assert [json.loads(call.function.arguments) for call in message.tool_calls] == CITIES
        assert len({call.id for call in message.tool_calls}) == 2

        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees"})
        answer = client.chat.completions.create(model=model, messages=messages, tools=tools)
        assert answer.choices[0].message.content == "Mild in both."
        assert "18 degrees" in json.dumps(world.last_body(UPSTREAMS[upstream][0]))

    def test_streamed_tools(self, client, model):
        tools = [{"type": "function", "function": TOOL}]
        with client.chat.completions.stream(model=model, messages=chat_messages(), tools=tools) as stream:
            answer = stream.get_final_completion()

        calls = answer.choices[0].message.tool_calls
        assert answer.choices[0].finish_reason == "tool_calls"
        assert [json.loads(call.function.arguments) for call in calls] == CITIES

    def test_a_refusal_of_the_provider(self, client, model):
        question = [{"role": "user", "content": "slow down"}]
        with pytest.raises(openai.RateLimitError) as raised:
            client.chat.completions.create(model=model, messages=question)

        assert "Too many requests." in raised.value.message


@pytest.mark.parametrize(("upstream", "shape"), RESPONSES)
class TestResponses:
    @pytest.fixture
    def model(self, upstream):
        return UPSTREAMS[upstream][1]

    @pytest.fixture
    def client(self, world, upstream, shape):
        with world.openai(UPSTREAMS[upstream][0], shape) as client:
            yield client

    def test_text(self, client, model):
        answer = client.responses.create(model=model, instructions="Be kind.", input="Hello")

        assert (answer.object, answer.status) == ("response", "completed")
        assert answer.output_text == "Grüße aus Zürich"
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (25, 12)
        assert answer.usage.total_tokens == 37

    def test_a_stream(self, client, model):
        events = list(client.responses.create(model=model, input="Hello", stream=True))

        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(pieces) == "Grüße aus Zürich"
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[0].type == "response.created"
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "Grüße aus Zürich"
        assert events[-1].response.usage.total_tokens == 37

    def test_a_cut_answer(self, client, model):
        answer = client.responses.create(model=model, input="Hello", max_output_tokens=16)

        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")

    def test_tools_and_their_results(self, client, model):
        tools = [{"type": "function", "strict": False} | TOOL]
        history = chat_messages()
        answer = client.responses.create(model=model, input=history, tools=tools)
        calls = [item for item in answer.output if item.type == "function_call"]

        assert [json.loads(call.arguments) for call in calls] == CITIES
        history += [item.model_dump(exclude_none=True) for item in answer.output]
        for call in calls:
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"})
        assert client.responses.create(model=model, input=history, tools=tools).output_text == "Mild in both."

    def test_streamed_tools(self, client, model):
        tools = [{"type": "function", "strict": False} | TOOL]
        with client.responses.stream(model=model, input=chat_messages(), tools=tools) as stream:
            answer = stream.get_final_response()

        calls = [item for item in answer.output if item.type == "function_call"]
        assert [json.loads(call.arguments) for call in calls] == CITIES


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "text-embedding-3-small"),
        ("gemini", "gemini-embedding-001"),
        ("cohere", "embed-v4.0"),
        ("bedrock", "amazon.titan-embed-text-v2:0"),
    ],
)
def test_embeddings(world, provider, model):
    with world.openai(provider) as client:
        one = client.embeddings.create(model=model, input="a river", encoding_format="float")
        assert one.data[0].embedding == pytest.approx([7 / 64, -0.25])
        if provider == "bedrock":
            with pytest.raises(openai.UnprocessableEntityError):
                client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
            return
        two = client.embeddings.create(model=model, input=["a river", "a hill"], encoding_format="float")
        assert [row.index for row in two.data] == [0, 1]
        assert two.data[1].embedding == pytest.approx([6 / 64, -0.25])
        if provider != "openai":
            # The SDK asks for base64 unless told otherwise, and decodes it to 32-bit floats.
            packed = client.embeddings.create(model=model, input="a river")
            assert packed.data[0].embedding == pytest.approx([7 / 64, -0.25])


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-x"), ("anthropic", "claude-x"), ("gemini", "gemini-x")]
)
def test_models_are_listed(world, provider, model):
    with world.openai(provider) as client:
        assert [entry.id for entry in client.models.list()] == [model]


def test_what_was_left_out_is_named_and_what_would_change_the_meaning_is_refused(world):
    with world.openai("anthropic") as client:
        raw = client.chat.completions.with_raw_response.create(model="claude-x", messages=QUESTION, seed=7)
        assert raw.headers["X-Gateway-Dropped"] == "seed"
        with pytest.raises(openai.UnprocessableEntityError) as raised:
            client.chat.completions.create(model="claude-x", messages=QUESTION, n=2)
        assert raised.value.response.json()["message"].startswith("n:")
