"""Failures arrive as the SDK's own exception types, whether the provider or the gateway raised them."""

import openai
import pytest

QUESTION = {"model": "sandbox-1", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("status", "exception"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
    ],
)
def test_a_provider_status_below_500_keeps_its_meaning(client, status, exception):
    with pytest.raises(exception) as raised:
        client.chat.completions.create(**QUESTION, extra_headers={"X-Sandbox-Status": str(status)})

    assert raised.value.status_code == status


def test_a_broken_provider_is_a_server_error_that_names_the_provider(client):
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(**QUESTION, extra_headers={"X-Sandbox-Status": "503"})

    body = raised.value.response.json()
    assert raised.value.status_code == 502
    assert (body["code"], body["provider"], body["upstream_status"]) == ("provider_error", "sandbox", 503)


def test_a_stream_that_cannot_start_raises_before_the_first_chunk(client):
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(**QUESTION, stream=True, extra_headers={"X-Sandbox-Status": "429"})


def test_a_slow_provider_runs_into_the_clients_own_limit(client):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(
            **QUESTION, extra_headers={"X-Sandbox-Delay-Ms": "3000"}
        )


def test_a_wrong_gateway_key_is_an_authentication_error(client):
    with pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(**QUESTION, extra_headers={"X-Gateway-Key": "sk-gateway-" + "0" * 64})


def test_a_missing_provider_header_is_a_bad_request_that_names_it(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**QUESTION, extra_headers={"X-Gateway-Provider": openai.Omit()})

    assert "x-gateway-provider" in raised.value.response.text.lower()
