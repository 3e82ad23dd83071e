"""One gateway for the whole run, one account, and the OpenAI SDK pointed at its sandbox."""

import json
import signal
import sys
import urllib.request
from pathlib import Path

import openai
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lib"))

from running import Gateway, open_url  # noqa: E402

# pytest closes its fixtures on Ctrl-C but not when it is told to end, and a gateway would stay behind.
signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def gateway():
    with Gateway() as running:
        yield running


@pytest.fixture(scope="session")
def account(gateway):
    return gateway.signup()


@pytest.fixture(scope="session")
def call(gateway, account):
    """Calls the management API with the account's key: method, path and body in, JSON out."""

    def send(method, path, body=None):
        request = urllib.request.Request(
            gateway.url + "/api/v1" + path,
            None if body is None else json.dumps(body).encode(),
            {"X-Gateway-Key": account["api_key"], "Content-Type": "application/json"},
            method=method,
        )
        with open_url(request) as answer:
            return json.load(answer)

    return send


@pytest.fixture
def settings(gateway, account):
    """What a person writes into their code to use the gateway with the SDK."""
    return {
        "base_url": gateway.url + "/v1",
        "api_key": account["api_key"],
        "default_headers": {"X-Gateway-Provider": "sandbox", "X-Gateway-Key": account["api_key"]},
        "max_retries": 0,
        "timeout": 20,
    }


@pytest.fixture
def client(settings):
    with openai.OpenAI(**settings) as client:
        yield client
