"""The Google SDK against providers of every format."""

import pytest
from conftest import UPSTREAMS
from google.genai import errors, types

CITIES = [{"city": "Paris"}, {"city": "Rome"}]
WEATHER = types.FunctionDeclaration(
    name="get_weather",
    description="Current weather",
    parameters_json_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
)
TOOLS = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[WEATHER])])


def usage_of(answer):
    usage = answer.usage_metadata
    return usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count


@pytest.mark.parametrize(
    ("upstream", "shape"), [(name, "gemini") for name in UPSTREAMS] + [("gemini", None)]
)
class TestGenerateContent:
    @pytest.fixture
    def model(self, upstream):
        # The colon of Bedrock's names has another meaning in a path of Gemini's.
        return UPSTREAMS[upstream][1].replace(":0", "")

    @pytest.fixture
    def models(self, world, upstream, shape):
        with world.google(UPSTREAMS[upstream][0], shape) as client:
            yield client.models

    def test_text(self, models, model):
        config = types.GenerateContentConfig(system_instruction="Be kind.")
        answer = models.generate_content(model=model, contents="Hello", config=config)

        assert answer.text == "Grüße aus Zürich"
        assert answer.candidates[0].finish_reason == types.FinishReason.STOP
        assert usage_of(answer) == (25, 12, 37)

    def test_a_stream(self, models, model):
        chunks = list(models.generate_content_stream(model=model, contents="Hello"))

        assert "".join(chunk.text or "" for chunk in chunks) == "Grüße aus Zürich"
        assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
        assert usage_of(chunks[-1]) == (25, 12, 37)

    def test_a_cut_answer(self, models, model):
        config = types.GenerateContentConfig(max_output_tokens=16)
        answer = models.generate_content(model=model, contents="Hello", config=config)

        assert answer.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS

    def test_tools_and_their_results(self, models, model):
        contents = [types.Content(role="user", parts=[types.Part.from_text(text="The weather?")])]
        answer = models.generate_content(model=model, contents=contents, config=TOOLS)

        assert [(call.name, call.args) for call in answer.function_calls] == [
            ("get_weather", city) for city in CITIES
        ]
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"result": "18 degrees"}
                )
            )
            for call in answer.function_calls
        ]
        contents += [answer.candidates[0].content, types.Content(role="user", parts=results)]
        answer = models.generate_content(model=model, contents=contents, config=TOOLS)
        assert answer.text == "Mild in both."

    def test_streamed_tools(self, models, model):
        chunks = models.generate_content_stream(model=model, contents="The weather?", config=TOOLS)
        calls = [call for chunk in chunks for call in chunk.function_calls or []]

        assert [call.args for call in calls] == CITIES

    def test_a_refusal_of_the_provider(self, models, model):
        with pytest.raises(errors.ClientError) as raised:
            models.generate_content(model=model, contents="slow down")

        assert (raised.value.code, raised.value.status) == (429, "RESOURCE_EXHAUSTED")
        assert raised.value.message == "Too many requests."
