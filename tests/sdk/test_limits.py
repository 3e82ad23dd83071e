"""Limits as clients meet them: the SDKs wait as the gateway says and succeed, and a parser of structured fields reads the
headers."""

import json
import urllib.request

import anthropic
import http_sf
import openai
import pytest
from running import open_url

MESSAGES = [{"role": "user", "content": "hello"}]
QUESTION = {"model": "sandbox-small", "messages": MESSAGES, "max_tokens": 10}
# Calls until the limit refuses one. It refills by one a second.
LIMIT, TRIES = 60, 200


@pytest.fixture
def limited(gateway):
    """An organization of its own."""
    return gateway.signup()


@pytest.fixture
def limit(gateway, limited):
    """Creates a limit of the organization."""

    def create(**fields):
        request = urllib.request.Request(
            f"{gateway.url}/api/v1/orgs/{limited['org']['id']}/limits",
            json.dumps(fields).encode(),
            {"X-Gateway-Key": limited["api_key"], "Content-Type": "application/json"},
        )
        with open_url(request) as answer:
            return json.load(answer)

    return create


@pytest.fixture
def chat(gateway, limited):
    headers = {"X-Gateway-Provider": "sandbox", "X-Gateway-Key": limited["api_key"]}
    with openai.OpenAI(
        base_url=gateway.url + "/v1",
        api_key=limited["api_key"],
        default_headers=headers,
        max_retries=0,
        timeout=20,
    ) as client:
        yield client


@pytest.fixture
def messages(gateway, limited):
    headers = {
        "X-Gateway-Provider": "sandbox",
        "X-Gateway-Key": limited["api_key"],
        "X-Gateway-Format": "anthropic",
    }
    with anthropic.Anthropic(
        base_url=gateway.url,
        api_key=limited["api_key"],
        default_headers=headers,
        max_retries=0,
        timeout=20,
    ) as client:
        yield client


def refused(call, exception):
    """Calls until the limit refuses, and returns that answer."""
    for _ in range(TRIES):
        try:
            call()
        except exception as error:
            return error.response
    pytest.fail("the limit refuses nothing")


def test_the_openai_sdk_waits_for_a_limit_and_succeeds(chat, limit):
    limit(name="calls", requests=LIMIT)
    answer = refused(lambda: chat.chat.completions.create(**QUESTION), openai.RateLimitError)
    assert answer.json()["code"] == "rate_limited"
    assert 0 < int(answer.headers["retry-after-ms"]) <= 1000 * int(answer.headers["retry-after"])

    for _ in range(TRIES):
        raw = chat.with_options(max_retries=5).chat.completions.with_raw_response.create(**QUESTION)
        assert raw.parse().choices[0].message.content
        if raw.retries_taken > 0:
            return
    pytest.fail("no call had to wait")


def test_the_anthropic_sdk_waits_for_a_limit_and_succeeds(messages, limit):
    limit(name="calls", requests=LIMIT)
    refused(lambda: messages.messages.create(**QUESTION), anthropic.RateLimitError)

    for _ in range(TRIES):
        raw = messages.with_options(max_retries=5).messages.with_raw_response.create(**QUESTION)
        assert raw.parse().content[0].text
        if raw.retries_taken > 0:
            return
    pytest.fail("no call had to wait")


def fields_of(headers):
    """Policies and what is left of them by name, as a parser of structured fields reads them."""
    policies = http_sf.parse(headers["ratelimit-policy"].encode(), tltype="list")
    left = http_sf.parse(headers["ratelimit"].encode(), tltype="list")
    return [{str(name): parameters for name, parameters in items} for items in (policies, left)]


@pytest.mark.parametrize("stream", [False, True])
def test_the_headers_are_structured_fields_before_the_first_byte(chat, limit, stream):
    limit(name="user-tokens", tokens=50_000, per="user")
    limit(name="hourly", requests=1_000, window="hour")
    with chat.chat.completions.with_streaming_response.create(
        **QUESTION, stream=stream, extra_headers={"X-Gateway-User": "ann"}
    ) as answer:
        headers = answer.headers
        policies, left = fields_of(headers)
        assert policies["user-tokens"] == {"q": 50_000, "w": 60, "qu": "tokens"}
        assert (policies["hourly"]["q"], policies["hourly"]["w"]) == (1_000, 3_600)
        assert 49_000 < left["user-tokens"]["r"] < 50_000
        assert left["hourly"]["r"] == 999
        assert headers["x-ratelimit-limit-tokens"] == "50000"
        assert int(headers["x-ratelimit-remaining-tokens"]) == left["user-tokens"]["r"]
        assert any(answer.iter_bytes())


def test_anthropic_callers_get_their_own_headers(messages, limit):
    limit(name="tokens", tokens=50_000)
    headers = messages.messages.with_raw_response.create(**QUESTION).headers
    assert headers["anthropic-ratelimit-tokens-limit"] == "50000"
    assert 49_000 < int(headers["anthropic-ratelimit-tokens-remaining"]) < 50_000
    assert headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
