"""The sandbox's models and embeddings, as the SDK reads them."""

import pytest

MODEL = "sandbox-embed"


def test_models_are_listed(client):
    models = client.models.list().data

    assert models
    assert all(model.object == "model" and model.id for model in models)


def test_every_input_has_a_vector_of_the_same_length_in_order(client):
    answer = client.embeddings.create(model=MODEL, input=["a river", "a rather long mountain range"])

    assert [item.index for item in answer.data] == [0, 1]
    first, second = (item.embedding for item in answer.data)
    assert len(first) == len(second) > 0
    assert first != second
    assert answer.usage.total_tokens > 0


def test_the_same_text_has_the_same_vector_in_either_encoding(client):
    # The SDK asks for base64 unless told otherwise, and decodes it to 32-bit floats.
    packed = client.embeddings.create(model=MODEL, input="a river").data[0].embedding
    plain = client.embeddings.create(model=MODEL, input="a river", encoding_format="float").data[0].embedding

    assert packed == pytest.approx(plain, abs=1e-6)
