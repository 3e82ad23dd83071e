"""One gateway for the whole run, one account, and the OpenAI SDK pointed at its sandbox."""

import signal
import sys
from pathlib import Path

import openai
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lib"))

from running import Gateway  # noqa: E402

# pytest closes its fixtures on Ctrl-C but not when it is told to end, and a gateway would stay behind.
signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def gateway():
    with Gateway() as running:
        yield running


@pytest.fixture(scope="session")
def account(gateway):
    return gateway.signup()


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
