"""An upgrade: this version starts on the data of an earlier one, and answers what that one answered.

`upgrade/` has the data of some commits, made by scripts/upgrade-fixture with their binaries. With GATEWAY_PREVIOUS_BINARY data
is made by that binary too. PostgreSQL is tested where TEST_POSTGRES_URL names one.
"""

import itertools
import json
import os
import subprocess
import threading
import urllib.error
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import earlier
import pytest
from pyenv import target_directory
from running import Gateway

FIXTURES = Path(__file__).resolve().parent / "upgrade"
PREVIOUS = os.environ.get("GATEWAY_PREVIOUS_BINARY")
COMMITS = [*sorted(path.name for path in FIXTURES.iterdir()), *(["previous"] if PREVIOUS else [])]
POSTGRES = os.environ.get("TEST_POSTGRES_URL")
# These depend on the time of the question, or change when a key is used.
VOLATILE = {"spent_usd", "opening_usd", "resets_at", "last_used_at", "checked_at"}


def binary():
    return Path(os.environ.get("GATEWAY_BINARY") or target_directory() / "debug" / "gateway")


class Upgraded:
    """This version on the data of the earlier one, with what was said about the data before the start."""

    def __init__(self, commit, gateway, made, provider):
        self.commit, self.gateway, self.made, self.provider = commit, gateway, made, provider
        self.account = earlier.login(gateway.url)


class Provider(ThreadingHTTPServer):
    """Answers every request as a model does, and keeps the credentials that it got."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.credentials.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.daemon_threads, self.credentials = True, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def check(gateway):
    """The report of `gateway upgrade-check` on the data of a gateway."""
    done = subprocess.run(
        [binary(), "upgrade-check", "--json"], env=gateway.environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=itertools.product(COMMITS, earlier.BACKENDS), ids="-".join)
def upgraded(request, tmp_path_factory):
    commit, backend = request.param
    if backend == "postgres" and not (POSTGRES and earlier.client("psql")):
        pytest.skip("needs PostgreSQL: scripts/services run -- scripts/pytest tests/scripts")
    directory = FIXTURES / commit / backend
    if commit == "previous":
        directory = tmp_path_factory.mktemp(commit) / backend
        earlier.make(PREVIOUS, directory, backend, POSTGRES)
    made = earlier.made_by(directory)
    with Provider() as provider, earlier.opened(directory, backend, POSTGRES) as (settings, files):
        settings["GATEWAY_PROVIDER_OPENAI_BASE_URL"] = provider.url
        with Unstarted(files, **settings) as gateway:
            yield Upgraded(commit, gateway, made, provider)
        provider.shutdown()


class Unstarted(Gateway):
    """A gateway whose data is checked twice before it starts."""

    reports = ()

    def start(self):
        self.reports = [check(self), check(self)]
        super().start()


def differences(old, new, path=""):
    """What the old answer has and the new one has not. New fields are no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in old.keys() - VOLATILE:
            if name not in new:
                found.append(f"{path}.{name} is missing")
            else:
                found += differences(old[name], new[name], f"{path}.{name}")
        return sorted(found)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [text for at, pair in enumerate(zip(old, new)) for text in differences(*pair, f"{path}[{at}]")]
    return [] if old == new else [f"{path} was {old!r} and is {new!r}"]


def test_the_check_names_what_the_start_changes_and_changes_nothing(upgraded):
    first, second = upgraded.gateway.reports
    assert first == second and first["usable"]
    assert {part["part"] for part in first["parts"]} == {"state", "logs"}
    for part in first["parts"]:
        assert len(part["pending"]) == part["known"] - part["schema"]
        # Nodes of the version before go on during the upgrade.
        assert part["oldest_after"] <= part["schema"]
    if upgraded.commit == "9dd6828":
        assert all(part["pending"] for part in first["parts"]), "migrations were added since"
    after = check(upgraded.gateway)
    assert after["usable"] and not any(part["pending"] for part in after["parts"])


def test_everything_is_answered_as_before(upgraded):
    found = []
    for path, old in upgraded.made["answers"].items():
        found += differences(old, upgraded.account.call(path), path)
    assert found == []


def test_the_answers_cover_what_is_stored(upgraded):
    answers = upgraded.made["answers"]
    rows = answers["/api/v1/logs?limit=100&q=invoices"]["logs"]
    assert len(rows) == earlier.CALLS and all(row["status"] == 200 for row in rows)
    usage = next(answer for path, answer in answers.items() if "/usage/summary" in path)
    assert usage["requests"] == earlier.CALLS and usage["total_tokens"] > 0
    assert len(answers["/api/v1/keys"]["keys"]) == 2
    for area in ("prompts", "skills", "datasets", "evals", "webhooks", "providers", "models", "budgets", "teams"):
        assert any(f"/{area}" in path for path in answers), area


def test_keys_and_their_scopes_hold(upgraded):
    account, made = upgraded.account, upgraded.made
    before = account.call("/api/v1/logs?limit=100")["logs"]
    answer = earlier.ask(account, made["api_key"], "After the upgrade")
    assert answer["choices"][0]["message"]["content"]
    body = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}
    named = account.call("/v1/chat/completions", body, key=made["scoped_key"], X_Gateway_Provider="auto")
    assert named["choices"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        earlier.ask(account, made["scoped_key"], "Another model")
    assert refused.value.code == 403
    account.wait_for("/api/v1/logs?limit=100", lambda answer: len(answer["logs"]) >= len(before) + 2)


def test_a_sealed_credential_can_be_opened(upgraded):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
    key = upgraded.made["api_key"]
    upgraded.account.call("/v1/chat/completions", body, key=key, X_Gateway_Provider="openai")
    assert upgraded.provider.credentials == ["Bearer sk-of-the-earlier-version"]


def test_a_difference_is_noticed():
    old = {"a": 1, "b": {"c": [1, 2]}, "spent_usd": 1}
    assert differences(old, {"a": 1, "b": {"c": [1, 2], "d": 0}, "e": 0}) == []
    assert differences(old, {"b": {"c": [1, 3]}}) == [".a is missing", ".b.c[1] was 2 and is 3"]
    assert differences([1], [1, 2], "/list") == ["/list was [1] and is [1, 2]"]
