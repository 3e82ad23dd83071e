"""The gateway of somebody who switches: an account, imports by the command, and the base URL of each dialect."""

import collections
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from running import open_url

COMPAT = "litellm,portkey,helicone,openrouter"
MASTER_KEY = "sk-litellm-master"
OLD_KEY = "sk-made-by-litellm-long-ago"

PORTKEY = {
    "configs": [
        {
            "slug": "pc-careful",
            "config": {
                "strategy": {"mode": "fallback"},
                "targets": [
                    {"virtual_key": "openai-main", "override_params": {"model": "500-careful"}},
                    {"virtual_key": "anthropic-main", "override_params": {"model": "careful-claude"}},
                ],
            },
        },
        {"slug": "pc-any", "config": {"virtual_key": "openai-main", "retry": {"attempts": 2}}},
    ],
    "virtual_keys": [
        {"slug": "openai-main", "provider": "openai"},
        {"slug": "anthropic-main", "provider": "anthropic"},
    ],
}

Answer = collections.namedtuple("Answer", "status headers text")


def post(url, key, body, headers=None):
    """Posts JSON with the key as LiteLLM's clients send it. A refusal is an answer too."""
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"} | (headers or {})
    request = urllib.request.Request(url, json.dumps(body).encode(), sent)
    try:
        with open_url(request, timeout=120) as answer:
            return Answer(answer.status, answer.headers, answer.read().decode())
    except urllib.error.HTTPError as problem:
        return Answer(problem.code, problem.headers, problem.read().decode(errors="replace"))


class Switched:
    """A gateway with an account, and the base URL of each dialect."""

    def __init__(self, gateway, account):
        self.gateway, self.account, self.key = gateway, account, account["api_key"]
        self.slug = account["org"]["slug"]

    @property
    def url(self):
        return self.gateway.url

    def compat(self, dialect):
        return f"{self.url}/compat/{dialect}"

    def api(self, path, body=None, method=None):
        sent = {"X-Gateway-Key": self.key, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, sent, method=method)
        with open_url(request) as answer:
            return json.load(answer)

    def import_file(self, source, text, environment):
        """Imports with the command, which reads `os.environ/` names from its own environment. Returns the report."""
        file = Path(self.gateway.directory, "import.txt")
        file.write_text(text)
        command = [str(self.gateway.binary), "import", source, str(file), "--org", self.slug, "--apply", "--json"]
        done = subprocess.run(
            command,
            cwd=self.gateway.directory,
            env=self.gateway.environment() | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def restart(self):
        """A server with SQLite sees what a command wrote after its next start."""
        assert self.gateway.end() == 0
        self.gateway.start()
