"""Clients that know only a base URL and a key, below /sdk: the key stands where each of them puts it, and no header of
the gateway is set. Programs that are not installed here have requests in the shape that they use, in request_shapes.
claude-code.json and codex.json are captured from Claude Code 2.1.197 and Codex 0.169.0, each a question and the turn with
the result of a tool; long texts are replaced by short ones, and most tools are left out. The others are written by
hand."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import anthropic
import node_clients
import openai
import pyenv
import pytest
from google import genai
from google.genai import errors as google_errors
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from running import NOWHERE, open_url

MODEL = "sandbox/sandbox-small"
ANSWER = "The sandbox read: hello"
SHAPES = sorted((Path(__file__).parent / "request_shapes").glob("*.json"))


@pytest.fixture(scope="module")
def sdk(gateway):
    return gateway.url + "/sdk"


@pytest.fixture(scope="module")
def key(account):
    return account["api_key"]


@pytest.fixture
def gpt(sdk, key):
    with openai.OpenAI(base_url=sdk + "/v1", api_key=key, max_retries=0, timeout=20) as client:
        yield client


def test_openai_chats_streams_and_embeds(gpt):
    messages = [{"role": "user", "content": "hello"}]
    answer = gpt.chat.completions.create(model=MODEL, messages=messages)
    assert answer.choices[0].message.content == ANSWER
    stream = gpt.chat.completions.create(model=MODEL, messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == ANSWER
    response = gpt.responses.create(model=MODEL, input="hello")
    assert response.output_text == ANSWER
    assert gpt.embeddings.create(model="sandbox/sandbox-embed", input="hello").data[0].embedding


def test_openai_lists_models_and_finds_one(gpt):
    assert MODEL in [model.id for model in gpt.models.list()]
    assert gpt.models.retrieve(MODEL).owned_by == "sandbox"


def test_openai_raises_its_own_errors(sdk, gpt):
    with pytest.raises(openai.BadRequestError, match="no-such-model"):
        gpt.chat.completions.create(model="no-such-model", messages=[])
    with openai.OpenAI(base_url=sdk + "/v1", api_key="sk-wrong", max_retries=0) as wrong:
        with pytest.raises(openai.AuthenticationError, match="gateway key"):
            wrong.models.list()


def test_azures_client_names_the_model_in_the_path(sdk, key):
    with openai.AzureOpenAI(azure_endpoint=sdk, api_key=key, api_version="2025-01-01", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="sandbox-small", messages=[{"role": "user", "content": "hello"}]
        )
    assert answer.choices[0].message.content == ANSWER


def test_anthropic_asks_streams_lists_and_raises(sdk, key):
    with anthropic.Anthropic(base_url=sdk, api_key=key, max_retries=0, timeout=20) as client:
        request = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
        assert client.messages.create(**request).content[0].text == ANSWER
        with client.messages.stream(**request) as stream:
            assert "".join(stream.text_stream) == ANSWER
        assert MODEL in [model.id for model in client.models.list()]
        with pytest.raises(anthropic.BadRequestError, match="no-such-model"):
            client.messages.create(**request | {"model": "no-such-model"})
    with anthropic.Anthropic(base_url=sdk, auth_token=key, max_retries=0, timeout=20) as client:
        assert client.messages.create(**request).content[0].text == ANSWER


def test_google_generates_streams_lists_and_raises(sdk, key):
    options = {"base_url": sdk, "timeout": 20_000}
    client = genai.Client(api_key=key, vertexai=False, http_options=options)
    for model in ("sandbox-small", MODEL):
        assert client.models.generate_content(model=model, contents="hello").text == ANSWER
    stream = client.models.generate_content_stream(model=MODEL, contents="hello")
    assert "".join(chunk.text or "" for chunk in stream) == ANSWER
    assert f"models/{MODEL}" in [model.name for model in client.models.list()]
    with pytest.raises(google_errors.ClientError) as raised:
        client.models.generate_content(model="no-such-model", contents="hello")
    assert raised.value.code == 400


def test_langchain_invokes_streams_and_embeds(sdk, key):
    model = ChatOpenAI(model=MODEL, base_url=sdk + "/v1", api_key=key, max_retries=0)
    assert model.invoke("hello").content == ANSWER
    assert "".join(chunk.content for chunk in model.stream("hello")) == ANSWER
    claude = ChatAnthropic(model=MODEL, base_url=sdk, api_key=key, max_retries=0)
    assert claude.invoke("hello").content == ANSWER
    vectors = OpenAIEmbeddings(
        model="sandbox/sandbox-embed", base_url=sdk + "/v1", api_key=key, check_embedding_ctx_length=False
    )
    assert vectors.embed_query("hello")


@pytest.mark.parametrize("file", SHAPES, ids=[file.stem for file in SHAPES])
def test_requests_of_other_programs_are_answered(file, sdk, key):
    for shape in json.loads(file.read_text()):
        body = shape.get("body")
        headers = {name: value.replace("$KEY", key) for name, value in shape["headers"].items()}
        request = urllib.request.Request(
            sdk + shape["path"],
            None if body is None else json.dumps(body).encode(),
            headers,
            method=shape["method"],
        )
        try:
            with open_url(request) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        assert status == shape["status"], f"{shape['path']}: {text}"
        for part in shape["answer"]:
            assert part in text, f"{shape['path']}: {part} is missing in {text}"


@pytest.mark.skipif(not shutil.which("npm"), reason="Node.js is not installed")
def test_clients_in_javascript(sdk, key, tmp_path_factory):
    installed = node_clients.install()
    shutil.copy(node_clients.SOURCE / "clients.mjs", installed / "clients.mjs")
    done = subprocess.run(
        ["node", "clients.mjs"],
        cwd=installed,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "SDK_URL": sdk, "SDK_KEY": key, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["openai", "langchain", "vercel-ai"], done.stdout


def test_llama_index(gateway, sdk):
    programs = pyenv.ensure(lambda text: print(f"llama-index: {text}", flush=True), pyenv.LLAMA_INDEX)
    account = gateway.signup()
    # Models of OpenAI, as far as the client knows.
    for name, model in (("gpt-4o", "sandbox-small"), ("text-embedding-3-small", "sandbox-embed")):
        body = {"name": name, "targets": [{"provider": "sandbox", "model": model}]}
        request = urllib.request.Request(
            f"{gateway.url}/api/v1/orgs/{account['org']['id']}/models",
            json.dumps(body).encode(),
            {"X-Gateway-Key": account["api_key"], "Content-Type": "application/json"},
        )
        with open_url(request) as answer:
            assert answer.status == 201
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SDK_URL": sdk, "SDK_KEY": account["api_key"]}
    # Nothing may be loaded from elsewhere.
    env |= {"NO_PROXY": "127.0.0.1", "HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE}
    done = subprocess.run(
        [str(programs / "python"), "llama_index_client.py"],
        cwd=Path(__file__).parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=240,  # it loads thousands of modules
    )
    assert done.returncode == 0, done.stdout + done.stderr
    got = json.loads(done.stdout)
    assert got.pop("embedding") > 0
    assert got == dict.fromkeys(("chat", "complete", "stream", "responses"), ANSWER)
