"""A gateway process for tests: the debug binary on a free port with a fresh data directory.

Nothing of the caller's environment reaches it: no setting, no provider key. Every built-in provider points to a
closed port on loopback, so that a test which calls one by mistake fails here and not at somebody's account.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from processes import ending_with_us
from pyenv import target_directory

START_LIMIT_S = 30
STOP_LIMIT_S = 40
# Nothing listens on the discard port, so a connection is refused at once.
NOWHERE = "http://127.0.0.1:9"
PROVIDERS = (
    "openai anthropic gemini azure-openai bedrock vertex mistral cohere groq together fireworks deepseek xai "
    "perplexity openrouter cerebras nvidia huggingface ollama vllm lmstudio"
).split()


class GatewayFailed(Exception):
    """The gateway did not start or stop correctly; the message contains its log."""


class Gateway:
    """Starts on entering and stops on leaving. `url` is its address. `files` are in the data directory before the start,
    and `binary` is another one than that of the tests."""

    def __init__(self, files=None, binary=None, **settings):
        self.files, self.other_binary, self.settings = files or {}, binary, settings
        self.url = None

    def __enter__(self):
        named = self.other_binary or os.environ.get("GATEWAY_BINARY")
        binary = Path(named or target_directory() / "debug" / "gateway")
        if not binary.exists():
            raise GatewayFailed(f"{binary} is missing: run `cargo build -p gateway` first")
        self.binary = binary
        self.directory = tempfile.mkdtemp(prefix="gateway-test-")
        self.log = Path(self.directory, "log")
        self.data = Path(self.directory, "data")
        try:
            self.fill()
            self.start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        return self

    def fill(self):
        if self.files:
            self.data.mkdir(mode=0o700)
        for name, content in self.files.items():
            (self.data / name).write_bytes(content)

    def start(self):
        """Starts the process on the existing data directory."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ending_with_us([str(self.binary), "serve"]),
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.url = self.wait_for_url()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind, _value, _trace):
        try:
            status = self.end()
            if kind is None and status != 0:
                raise GatewayFailed(f"the gateway ended with status {status}, not 0:\n{self.log_tail()}")
            if kind is None and "panicked at" in self.log.read_text(errors="replace"):
                raise GatewayFailed(f"something panicked in the gateway:\n{self.log_tail()}")
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GATEWAY_", "AWS_", "GOOGLE_"))
            and not name.endswith(("_API_KEY", "_TOKEN"))
        }
        nowhere = {
            f"GATEWAY_PROVIDER_{name.upper().replace('-', '_')}_BASE_URL": NOWHERE for name in PROVIDERS
        }
        ours = {
            "GATEWAY_LISTEN": "127.0.0.1:0",
            "GATEWAY_DATA_DIR": str(self.data),
            "GATEWAY_DEFAULT_PLAN": "enterprise",
            "GATEWAY_RATE_LIMIT_FREE": "0",
            "GATEWAY_RATE_LIMIT_PRO": "0",
            "GATEWAY_RATE_LIMIT_ENTERPRISE": "0",
            "GATEWAY_AUTH_ATTEMPTS": "1000000",
            "GATEWAY_AUTH_FAILURES": "1000000",
            "GATEWAY_EGRESS_PRIVATE": "allow",
        }
        return kept | nowhere | ours | self.settings

    def wait_for_url(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            url = url_in(self.log.read_text(errors="replace"))
            if url and is_healthy(url):
                return url
            if self.process.poll() is not None:
                raise GatewayFailed(
                    f"the gateway ended with status {self.process.returncode}:\n{self.log_tail()}"
                )
            time.sleep(0.02)
        raise GatewayFailed(f"the gateway was not healthy within {START_LIMIT_S} s:\n{self.log_tail()}")

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def log_tail(self, lines=60):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signup(self):
        """Signs up a new account and returns the response: org, user, api_key, token."""
        name = "t" + secrets.token_hex(6)
        body = {"email": f"{name}@example.com", "password": secrets.token_hex(12), "org_slug": name}
        request = urllib.request.Request(
            self.url + "/api/v1/signup", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with open_url(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as problem:
            raise GatewayFailed(
                f"signup answered {problem.code}: {problem.read().decode(errors='replace')}"
            ) from problem


def url_in(log):
    """The address in the start-up line: the field `url` of a JSON log line, else the first one in plain text."""
    for line in log.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            fields = record.get("fields")
            url = record.get("url") or (fields.get("url") if isinstance(fields, dict) else None)
            if isinstance(url, str):
                return url.rstrip("/")
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return match.group()
    return None


def open_url(request, timeout=30):
    """Opens a URL on this machine, whatever proxy the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout)


def is_healthy(url):
    try:
        with open_url(url + "/healthz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
