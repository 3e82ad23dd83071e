"""The Anthropic SDK against providers of every format."""

import anthropic
import pytest
from conftest import UPSTREAMS

QUESTION = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "Current weather", "input_schema": SCHEMA}]
CITIES = [{"city": "Paris"}, {"city": "Rome"}]


@pytest.mark.parametrize(
    ("upstream", "shape"), [(name, "anthropic") for name in UPSTREAMS] + [("anthropic", None)]
)
class TestMessages:
    @pytest.fixture
    def model(self, upstream):
        return UPSTREAMS[upstream][1]

    @pytest.fixture
    def client(self, world, upstream, shape):
        with world.anthropic(UPSTREAMS[upstream][0], shape) as client:
            yield client

    def test_text(self, client, model, upstream):
        answer = client.messages.create(model=model, max_tokens=100, system="Be kind.", messages=QUESTION)

        assert (answer.type, answer.role, answer.stop_reason) == ("message", "assistant", "end_turn")
        assert [block.text for block in answer.content] == ["Grüße aus Zürich"]
        # Cache reads are reported separately from the input.
        cached = 0 if upstream == "cohere" else 10
        assert (answer.usage.cache_read_input_tokens or 0) == cached
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (25 - cached, 12)

    def test_a_stream(self, client, model, upstream):
        with client.messages.stream(model=model, max_tokens=100, messages=QUESTION) as stream:
            text = "".join(stream.text_stream)
            answer = stream.get_final_message()

        assert text == "Grüße aus Zürich"
        assert answer.stop_reason == "end_turn"
        assert answer.usage.output_tokens == 12
        assert answer.usage.input_tokens == (25 if upstream == "cohere" else 15)

    def test_a_cut_answer(self, client, model):
        answer = client.messages.create(model=model, max_tokens=16, messages=QUESTION)

        assert answer.stop_reason == "max_tokens"

    def test_tools_and_their_results(self, client, model):
        messages = list(QUESTION)
        answer = client.messages.create(model=model, max_tokens=100, messages=messages, tools=TOOLS)
        calls = [block for block in answer.content if block.type == "tool_use"]

        assert answer.stop_reason == "tool_use"
        assert [(call.name, call.input) for call in calls] == [("get_weather", city) for city in CITIES]
        assert len({call.id for call in calls}) == 2
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"} for call in calls
        ]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
        answer = client.messages.create(model=model, max_tokens=100, messages=messages, tools=TOOLS)
        assert answer.content[0].text == "Mild in both."

    def test_streamed_tools(self, client, model):
        with client.messages.stream(model=model, max_tokens=100, messages=QUESTION, tools=TOOLS) as stream:
            answer = stream.get_final_message()

        assert answer.stop_reason == "tool_use"
        assert [block.input for block in answer.content if block.type == "tool_use"] == CITIES

    def test_a_refusal_of_the_provider(self, client, model):
        with pytest.raises(anthropic.RateLimitError) as raised:
            client.messages.create(
                model=model, max_tokens=100, messages=[{"role": "user", "content": "slow down"}]
            )

        assert raised.value.body["error"]["message"] == "Too many requests."


@pytest.mark.parametrize(("provider", "model"), [("openai", "gpt-x"), ("gemini", "gemini-x")])
def test_models_are_listed(world, provider, model):
    with world.anthropic(provider) as client:
        assert [entry.id for entry in client.models.list()] == [model]
