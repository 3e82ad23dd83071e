"""The first hour of a person who has only the README: its commands are run as they stand, and leave a logged and priced
request, a named model with a fallback, a key for one application, a budget and a published skill."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from pyenv import ROOT
from running import Gateway, open_url


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A gateway with its defaults at which the commands of the README were run, and the directory of their files."""
    directory = tmp_path_factory.mktemp("first-hour")
    # The defaults of a first start; other tests have higher limits.
    with Gateway(GATEWAY_DEFAULT_PLAN="free", GATEWAY_AUTH_ATTEMPTS="10") as gateway:
        blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        assert len(blocks) >= 4
        script = 'curl() { command curl --fail "$@"; }\n' + "\n".join(blocks)
        script = script.replace("http://127.0.0.1:8080", gateway.url)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "NO_PROXY": "127.0.0.1"}
        began = time.monotonic()
        done = subprocess.run(
            ["bash", "-eu", "-c", script], cwd=directory, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"the README took {time.monotonic() - began:.1f} s")
        yield Account(gateway, directory)


class Account:
    def __init__(self, gateway, directory):
        self.gateway = gateway
        self.made = json.loads((directory / "signup.json").read_text())
        self.app_key = json.loads((directory / "app-key.json").read_text())["raw_key"]
        self.org = self.made["org"]["id"]
        self.skill = json.loads((directory / "skill.json").read_text())["id"]

    def call(self, method, path, body=None, token=None):
        headers = {"Authorization": f"Bearer {token or self.made['token']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.gateway.url + path, data, headers, method=method)
        with open_url(request) as answer:
            return json.load(answer)

    def logs(self):
        return self.call("GET", "/api/v1/logs")["logs"]


def test_the_first_request_is_logged_and_priced(followed):
    first = followed.logs()[-1]
    assert (first["status"], first["provider"], first["model"]) == (200, "sandbox", "sandbox-small")
    assert first["cost_usd"] > 0 and first["total_tokens"] > 0
    assert followed.call("GET", "/api/v1/usage/summary")["cost_usd"] > 0


def test_the_named_model_fell_back(followed):
    row = followed.logs()[0]
    assert row["provider"] == "sandbox" and row["model"] == "sandbox-large"
    assert [attempt["provider"] for attempt in row["attempts"]] == ["ollama", "sandbox"]


def test_the_key_of_the_application_is_limited(followed):
    models = followed.call("GET", "/sdk/v1/models", token=followed.app_key)
    assert [model["id"] for model in models["data"]] == ["assistant"]
    body = {"model": "sandbox/sandbox-small", "messages": [{"role": "user", "content": "hello"}]}
    with pytest.raises(urllib.error.HTTPError) as refused:
        followed.call("POST", "/sdk/v1/chat/completions", body, token=followed.app_key)
    assert refused.value.code == 403


def test_the_budget_counts(followed):
    budget = followed.call("GET", f"/api/v1/orgs/{followed.org}/budgets")["budgets"][0]
    assert budget["hard_limit_usd"] == 100 and budget["spent_usd"] > 0


def test_a_skill_is_published(followed):
    shelf = followed.call("GET", "/api/v1/skills/public")["skills"]
    assert [item["id"] for item in shelf] == [followed.skill]
    assert followed.call("GET", f"/api/v1/orgs/{followed.org}")["plan"] == "enterprise"
