"""A LiteLLM proxy from PyPI with a configuration file, without a database and without the internet."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pyenv
from processes import ending_with_us
from running import NOWHERE, open_url

START_LIMIT_S = 240
STOP_LIMIT_S = 20
LISTS = "MODEL_COST_MAP ANTHROPIC_BETA_HEADERS AUTOROUTER_PRESETS BLOG_POSTS POLICY_TEMPLATES".split()


class LitellmFailed(Exception):
    """LiteLLM did not start; the message contains its log."""


class Litellm:
    """Starts on entering and stops on leaving. `url` is its address."""

    def __init__(self, config, environment):
        self.config, self.settings = config, environment

    def __enter__(self):
        programs = pyenv.ensure(lambda text: print(f"litellm: {text}", flush=True), pyenv.LITELLM)
        self.directory = tempfile.mkdtemp(prefix="litellm-test-")
        config, self.log = Path(self.directory, "config.yaml"), Path(self.directory, "log")
        config.write_text(self.config)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ending_with_us([*command, "--telemetry", "False"]),
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def environment(self):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LITELLM_", "AWS_", "AZURE_", "OPENAI_", "ANTHROPIC_", "DATABASE_"))
            and not name.endswith(("_API_KEY", "_TOKEN", "_proxy", "_PROXY"))
            # What LiteLLM compiles at its first start is kept for the next one.
            and name != "PYTHONDONTWRITEBYTECODE"
        }
        # Its lists come from the package instead of the internet, and whatever else asks for it meets a closed port.
        lists = {f"LITELLM_LOCAL_{name}": "True" for name in LISTS}
        closed = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
        return kept | lists | closed | {"HOME": self.directory} | self.settings

    def wait(self):
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise LitellmFailed(f"LiteLLM ended with status {self.process.returncode}:\n{self.log_tail()}")
            try:
                with open_url(self.url + "/health/liveliness", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise LitellmFailed(f"LiteLLM did not answer within {START_LIMIT_S} s:\n{self.log_tail()}")

    def log_tail(self, lines=40):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
