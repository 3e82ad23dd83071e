"""`gateway serve` alone, in an empty directory on a terminal: the printed addresses and commands work as they stand."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from pyenv import target_directory
from running import open_url

START_LIMIT_S = 30
STOP_LIMIT_S = 40


def read_until(terminal, text):
    """What the process wrote to the terminal, up to a text."""
    output, until = "", time.monotonic() + START_LIMIT_S
    while text not in output:
        ready, _, _ = select.select([terminal], [], [], max(0, until - time.monotonic()))
        assert ready, f"{text} was not printed in time: {output}"
        output += os.read(terminal, 65536).decode(errors="replace").replace("\r\n", "\n")
    return output


@pytest.fixture
def started(tmp_path):
    """The process without arguments and settings, but for a free port, and what it printed."""
    binary = Path(os.environ.get("GATEWAY_BINARY") or target_directory() / "debug" / "gateway")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    terminal, other = pty.openpty()
    process = subprocess.Popen(
        [binary, "serve"],
        cwd=tmp_path,
        env=dict(env, GATEWAY_LISTEN="127.0.0.1:0"),
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)
    try:
        yield process, read_until(terminal, "gateway doctor")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal)


def test_the_printed_first_steps_work_as_they_stand(started, tmp_path):
    process, printed = started
    console = re.search(r"^  Console +(http://127\.0\.0\.1:\d+/\S*)$", printed, re.MULTILINE)[1]
    with open_url(console) as page:
        assert page.status == 200 and "text/html" in page.headers["Content-Type"]
    assert (tmp_path / "data/gateway.db").exists()

    url = console[: console.index("/", len("http://"))]
    body = {"email": "you@example.com", "password": "correct horse battery", "org_slug": "demo"}
    signup = urllib.request.Request(
        url + "/api/v1/signup", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with open_url(signup) as answer:
        key = json.load(answer)["api_key"]
    command = re.search(r"^ +(curl .*?\\\n.*)$", printed, re.MULTILINE)[1]
    done = subprocess.run(
        ["bash", "-c", command.replace("curl ", "curl --silent --fail --noproxy '*' ", 1)],
        env={"PATH": os.environ["PATH"], "KEY": key},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]

    process.send_signal(signal.SIGINT)
    assert process.wait(STOP_LIMIT_S) == 0
