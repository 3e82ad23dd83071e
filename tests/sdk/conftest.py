"""Two gateways for the whole run: one for its sandbox, one with a provider of every format. Each test gets the SDKs set
up as a user would."""

import contextlib
import json
import shutil
import signal
import sys
import urllib.request
from pathlib import Path

import anthropic
import openai
import pytest
from google import genai

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lib"))

import node_clients  # noqa: E402
from providers import Provider  # noqa: E402
from running import Gateway, open_url  # noqa: E402

# pytest closes its fixtures on Ctrl-C but not on SIGTERM, which would leave a gateway running.
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


@pytest.fixture(scope="session")
def packages():
    """The programs for MCP and skills from npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    return node_clients.install("mcp-node", Path(__file__).parent / "mcp_node")


@pytest.fixture
def settings(gateway, account):
    """The arguments that a user gives the SDK."""
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


# The fake provider, its name in the gateway, and the model. OpenAI models without chat completions are called through
# responses; Groq has only chat completions.
UPSTREAMS = {
    "openai": ("openai", "gpt-4o"),
    "openai-responses": ("openai", "gpt-5-pro"),
    "groq": ("groq", "llama-3.3-70b-versatile"),
    "anthropic": ("anthropic", "claude-sonnet-4-5"),
    "gemini": ("gemini", "gemini-2.5-flash"),
    "cohere": ("cohere", "command-a-03-2025"),
    "bedrock": ("bedrock", "us.amazon.nova-pro-v1:0"),
}
KINDS = {"openai": "openai", "groq": "openai"} | {
    name: name for name in ("anthropic", "gemini", "cohere", "bedrock")
}


class World:
    """A gateway with providers of every format, and the SDKs pointed at it."""

    def __init__(self, gateway, key, providers):
        self.url, self.key, self.providers = gateway.url, key, providers

    def headers(self, provider, shape):
        headers = {"X-Gateway-Key": self.key, "X-Gateway-Provider": provider}
        return headers | ({"X-Gateway-Format": shape} if shape else {})

    def openai(self, provider, shape="openai"):
        return openai.OpenAI(
            base_url=self.url + "/v1",
            api_key=self.key,
            default_headers=self.headers(provider, shape),
            max_retries=0,
            timeout=20,
        )

    def anthropic(self, provider, shape="anthropic"):
        return anthropic.Anthropic(
            base_url=self.url,
            api_key=self.key,
            default_headers=self.headers(provider, shape),
            max_retries=0,
            timeout=20,
        )

    def google(self, provider, shape="gemini"):
        options = {"base_url": self.url, "headers": self.headers(provider, shape), "timeout": 20_000}
        return genai.Client(api_key=self.key, vertexai=False, http_options=options)

    def last_body(self, provider):
        return self.providers[provider].seen[-1][1]


@pytest.fixture(scope="session")
def world():
    with contextlib.ExitStack() as stack:
        providers = {name: stack.enter_context(Provider(kind)) for name, kind in KINDS.items()}
        settings = {}
        for name, provider in providers.items():
            key = "AKIAIOSFODNN7EXAMPLE:secret" if name == "bedrock" else f"sk-{KINDS[name]}"
            settings[f"GATEWAY_PROVIDER_{name.upper()}_BASE_URL"] = provider.url
            settings[f"GATEWAY_PROVIDER_{name.upper()}_API_KEY"] = key
        gateway = stack.enter_context(Gateway(**settings))
        yield World(gateway, gateway.signup()["api_key"], providers)
