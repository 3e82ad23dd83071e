"""Packages of Node.js: whether they can be built here, their installation, and the steps of their package.json."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time

from processes import ending_with_us

OLDEST = (20, 19)
STEP_LIMIT_S = 300
STOP_LIMIT_S = 20


class Failed(Exception):
    """An error with a message for the user."""


def why_not():
    """The reason why packages cannot be built here, or None."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "Node.js is missing"
    shown = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    if tuple(int(number) for number in re.findall(r"\d+", shown)[:2]) < OLDEST:
        return f"Node.js {shown} is older than {'.'.join(map(str, OLDEST))}"
    return None


class Package:
    """A directory with package.json and package-lock.json. `say` prints a line for the user."""

    def __init__(self, directory, say):
        self.directory, self.say = directory, say

    def install(self):
        """Runs `npm ci` unless node_modules was installed from the same lock file."""
        lock = b"".join((self.directory / name).read_bytes() for name in ("package-lock.json", "package.json"))
        stamp, key = self.directory / "node_modules" / ".installed", hashlib.sha256(lock).hexdigest()
        if stamp.exists() and stamp.read_text() == key:
            return
        self.run(["npm", "ci", "--no-audit", "--no-fund"])
        stamp.write_text(key)

    def step(self, script, limit=STEP_LIMIT_S, **env):
        self.run(["npm", "run", "--silent", script], limit, env)

    def run(self, command, limit=STEP_LIMIT_S, env=None):
        """Runs a command in its own session and ends the whole session afterwards, because browsers start many processes."""
        began = time.monotonic()
        name = command[-1] if "run" in command else " ".join(command[:2])
        process = subprocess.Popen(
            ending_with_us(command),
            cwd=self.directory,
            env=dict(os.environ, **(env or {})),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{name} was not done after {limit} s") from None
        finally:
            end_session(process)
        if status != 0:
            raise Failed(f"{name} ended with status {status}")
        self.say(f"{name} took {time.monotonic() - began:.1f} s")


def end_session(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(STOP_LIMIT_S if number == signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue
