"""Data of an earlier version: made through the API of its binary, packed into files, and unpacked for a test.

What the earlier version answered is kept beside the data, so that a test can compare it with what this version answers.
"""

import contextlib
import gzip
import json
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path

from running import Gateway, open_url

PASSWORD = "correct horse battery"
EMAIL = "maria@example.com"
WAIT_LIMIT_S = 60
# Fixed secrets: the data of the test is public, and the next version must be able to open it. Nothing ages.
SETTINGS = {
    "GATEWAY_MASTER_KEY": "5a" * 32,
    "GATEWAY_TOKEN_SECRET": "a5" * 32,
    "GATEWAY_LOG_RETENTION_DAYS": "36500",
}
BACKENDS = ("sqlite", "postgres")
SQLITE_FILES = ("gateway.db", "gateway.logs.db")
CALLS = 5
SKILL = """---
name: release-notes
headline: Notes that users understand
description: Writes the notes of a release from its merged changes. Use when a release is prepared or the user asks for notes.
---

# Write release notes

1. Read the merged changes: `git log --oneline LAST..HEAD`.
2. Group them under `Added`, `Changed` and `Fixed`. Leave out changes of tests.
3. Write one line for each in the past tense, at most 100 characters.

Check that every line names what a user notices: `grep -c '^- ' NOTES.md` prints the number of changes.
"""


class Account:
    """Calls a gateway as the owner of the organization, and remembers ids and keys."""

    def __init__(self, url, token):
        self.url, self.token = url, token

    def call(self, path, body=None, method=None, key=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers |= {"X-Gateway-Key": key} if key else {"Authorization": f"Bearer {self.token}"}
        data = None if body is None else json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with open_url(request) as answer:
            return json.load(answer)

    def wait_for(self, path, is_done):
        until = time.monotonic() + WAIT_LIMIT_S
        while not is_done(answer := self.call(path)):
            if time.monotonic() > until:
                raise TimeoutError(f"{path} did not change in time: {answer}")
            time.sleep(0.1)
        return answer


def login(url):
    request = urllib.request.Request(
        url + "/api/v1/login",
        json.dumps({"email": EMAIL, "password": PASSWORD}).encode(),
        {"Content-Type": "application/json"},
    )
    with open_url(request) as answer:
        return Account(url, json.load(answer)["token"])


def ask(account, key, text, **headers):
    body = {"model": "sandbox-small", "messages": [{"role": "user", "content": text}]}
    return account.call("/v1/chat/completions", body, key=key, X_Gateway_Provider="sandbox", **headers)


def populate(url):
    """Creates one of everything. Returns the ids and keys, and what the gateway answers to reads."""
    body = {"email": EMAIL, "password": PASSWORD, "org_slug": "earlier"}
    new = Account(url, "").call("/api/v1/signup", body)
    account, org = Account(url, new["token"]), f"/api/v1/orgs/{new['org']['id']}"
    account.call(f"{org}/teams", {"name": "support"})
    account.call(f"{org}/providers", {"name": "openai", "api_key": "sk-of-the-earlier-version"})
    account.call(f"{org}/models", {"name": "assistant", "targets": [{"provider": "sandbox", "model": "sandbox-large"}]})
    account.call(f"{org}/budgets", {"scope": "org", "period": "monthly", "hard_limit_usd": 100})
    scoped = account.call("/api/v1/keys", {"name": "app", "scopes": ["model:assistant"]})["raw_key"]
    account.call("/api/v1/prompts", {"namespace": "support", "slug": "reply", "content": "You are {{name}}."})
    account.call("/api/v1/prompts/support/reply", {"content": "You are {{name}}, be brief."}, "PUT")
    account.call("/api/v1/prompts/support/reply/labels/production", {"version": 1}, "PUT")
    account.call(f"{org}/limits", {"name": "user-tokens", "tokens": 60000, "per": "user"})
    account.call(f"{org}/budgets", {"scope": "user", "scope_id": "maria", "period": "monthly", "hard_limit_usd": 50})
    alert = {"query": "model:gpt-4o*", "measure": "error_rate", "above": 0.2, "window_minutes": 10, "min_requests": 20}
    account.call(f"{org}/alerts", {"name": "failures"} | alert)
    dataset = account.call("/api/v1/datasets", {"name": "arithmetic"})["id"]
    account.call(f"/api/v1/datasets/{dataset}/cases", {"input": "What is 1 + 1?", "expected": "2"})
    check = {"type": "static", "evaluator": "contains", "config": {"value": "invoices"}}
    evaluation = account.call("/api/v1/evals", {"name": "on topic", **check})["id"]
    account.call("/api/v1/webhooks", {"url": "http://127.0.0.1:9/hook", "events": ["key.create"]})
    skill = account.call("/api/v1/skills", {"raw_source": SKILL})["id"]
    account.wait_for(f"/api/v1/skills/{skill}/evaluations", lambda answer: answer["evaluations"])
    for number in range(CALLS):
        ask(account, new["api_key"], f"Question {number} about invoices", X_Gateway_User="maria", X_Gateway_Session="one")
    rows = account.wait_for("/api/v1/logs?limit=100", lambda answer: len(answer["logs"]) == CALLS)["logs"]
    day = rows[-1]["created_at"][:10]
    span = f"from={day}T00:00:00Z&to={day}T23:59:59Z"
    reads = [
        org, f"{org}/teams", f"{org}/members", f"{org}/providers", f"{org}/models", f"{org}/budgets", "/api/v1/keys",
        f"{org}/limits", f"{org}/alerts", "/api/v1/prompts/support/reply/labels",
        "/api/v1/prompts", "/api/v1/prompts/support/reply", "/api/v1/prompts/support/reply?version=1",
        f"/api/v1/datasets/{dataset}", f"/api/v1/evals/{evaluation}", "/api/v1/webhooks",
        f"/api/v1/skills/{skill}", f"/api/v1/skills/{skill}/evaluations", "/api/v1/logs?limit=100",
        "/api/v1/logs?limit=100&q=invoices", "/api/v1/logs?limit=100&user=maria", f"/api/v1/logs/{rows[0]['id']}",
        "/api/v1/sessions", f"/api/v1/usage/summary?{span}", f"/api/v1/usage/breakdown?by=model&{span}",
    ]
    return {
        "api_key": new["api_key"],
        "scoped_key": scoped,
        "answers": {path: account.call(path) for path in reads},
    }


def make(binary, directory, backend, postgres_url=None):
    """Runs the earlier binary on an empty data directory, and packs what it leaves into the directory."""
    with contextlib.ExitStack() as stack:
        settings = dict(SETTINGS)
        if backend == "postgres":
            settings["GATEWAY_DATABASE_URL"] = stack.enter_context(database(postgres_url))
        gateway = stack.enter_context(Gateway(binary=binary, **settings))
        made = populate(gateway.url)
        # Stopped in order, so that no row is left in the spool.
        gateway.end()
        directory.mkdir(parents=True, exist_ok=True)
        if backend == "postgres":
            pack(directory / "database.sql.gz", dump(settings["GATEWAY_DATABASE_URL"]))
        else:
            for name in SQLITE_FILES:
                pack(directory / f"{name}.gz", without_journal(gateway.data / name))
    pack(directory / "made.json.gz", json.dumps(made, indent=1).encode())


def made_by(directory):
    """The keys of the account, and what the earlier version answered."""
    return json.loads(gzip.decompress((directory / "made.json.gz").read_bytes()))


def without_journal(path):
    """The bytes of a SQLite file after what is in its write-ahead log was moved into it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise OSError(f"{path} is still in use")
    return path.read_bytes()


def pack(path, data):
    path.write_bytes(gzip.compress(data, mtime=0))


@contextlib.contextmanager
def opened(directory, backend, postgres_url=None):
    """The settings and the files with which a gateway starts on the packed data."""
    if backend == "sqlite":
        files = {name: gzip.decompress((directory / f"{name}.gz").read_bytes()) for name in SQLITE_FILES}
        yield dict(SETTINGS), files
        return
    with database(postgres_url) as url:
        run_program("psql", url, "--quiet", given=gzip.decompress((directory / "database.sql.gz").read_bytes()))
        yield dict(SETTINGS, GATEWAY_DATABASE_URL=url), {}


@contextlib.contextmanager
def database(postgres_url):
    """A new database of the server, dropped at the end."""
    name = f"earlier_{secrets.token_hex(8)}"
    run_program("psql", postgres_url, "--quiet", given=f"CREATE DATABASE {name};".encode())
    try:
        yield re.sub(r"/[^/]*$", f"/{name}", postgres_url)
    finally:
        run_program("psql", postgres_url, "--quiet", given=f"DROP DATABASE {name} WITH (FORCE);".encode())


def dump(url):
    text = run_program("pg_dump", url, "--inserts", "--no-owner", "--no-privileges").decode()
    # Commands of the newest psql, and settings of the newest server, which earlier ones do not know.
    kept = [line for line in text.splitlines() if not line.startswith(("\\restrict", "\\unrestrict", "SET transaction_timeout"))]
    return ("\n".join(kept) + "\n").encode()


def client(name):
    """The path of a program of PostgreSQL, or None."""
    servers = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or next((str(path) for path in servers), None)


def run_program(name, url, *arguments, given=b""):
    """Runs a program of PostgreSQL, and returns its output."""
    command = [client(name) or name, *arguments, f"--dbname={url}"]
    if name == "psql":
        command += ["--no-psqlrc", "--set=ON_ERROR_STOP=1"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    done = subprocess.run(command, input=given, env=env, capture_output=True, timeout=WAIT_LIMIT_S)
    if done.returncode != 0:
        raise OSError(f"{name} ended with status {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout
