"""The Python environments of the tests, below the target directory.

Each is made once and then kept until the pinned packages, the interpreter or the place change.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import apt

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
OLDEST = (3, 11)
PIP_TRIES = 3
HELP = (
    f"the tests need Python {OLDEST[0]}.{OLDEST[1]} or later with its venv module: "
    "Debian/Ubuntu `apt-get install python3-venv`, elsewhere `python3 -m pip install --user virtualenv`"
)


class Environment:
    """A directory below the target directory, the files with its packages, and how pip is called."""

    def __init__(self, directory, files, arguments):
        self.directory, self.files, self.arguments = directory, files, arguments


TESTS = Environment(
    "venv",
    [SCRIPTS / "requirements.txt", SCRIPTS / "constraints.txt"],
    ["-r", str(SCRIPTS / "requirements.txt"), "-c", str(SCRIPTS / "constraints.txt")],
)


def complete(name):
    """An environment with a complete list of packages, so that nothing is resolved. Only what is loaded is compiled."""
    packages = SCRIPTS / f"{name}.txt"
    return Environment(f"venv-{name}", [packages], ["--no-deps", "--no-compile", "-r", str(packages)])


# Programs that need other versions of what the tests use.
LITELLM, HELICONE, LLAMA_INDEX = (complete(name) for name in ("litellm", "helicone", "llama-index"))


class VenvFailed(Exception):
    """The environment could not be created; the message says what to install."""


def target_directory():
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()


def ensure(say, environment=TESTS):
    """Returns the directory of the environment's programs. Creates the environment if it is missing or out of date."""
    target = target_directory()
    target.mkdir(parents=True, exist_ok=True)
    venv = target / environment.directory
    interpreter = find_interpreter()
    stamp, key = venv / "stamp", key_of(venv, interpreter, environment)
    with open(target / f"{environment.directory}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == key):
            began = time.monotonic()
            say(f"making the Python environment in {venv}")
            shutil.rmtree(venv, ignore_errors=True)
            create(interpreter, venv, say)
            install(venv, say, environment)
            stamp.write_text(key)
            say(f"Python environment made in {time.monotonic() - began:.0f} s")
    return venv / "bin"


def find_interpreter():
    names = [sys.executable, "python3", "python3.14", "python3.13", "python3.12", "python3.11"]
    for name in names:
        path = shutil.which(name) if name else None
        if path and version_of(path) >= OLDEST:
            return path
    raise VenvFailed(HELP)


def version_of(path):
    script = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([path, "-c", script], capture_output=True, text=True)
    return tuple(int(number) for number in done.stdout.split()) if done.returncode == 0 else (0, 0)


def key_of(venv, interpreter, environment):
    digest = hashlib.sha256()
    for part in [
        str(venv).encode(),
        repr(version_of(interpreter)).encode(),
        *(file.read_bytes() for file in environment.files),
    ]:
        digest.update(part + b"\0")
    return digest.hexdigest()


def create(interpreter, venv, say):
    if made(interpreter, venv):
        return
    if apt.can_install():
        try:
            apt.install(["python3-venv"], say)
        except (OSError, subprocess.CalledProcessError) as problem:
            say(f"python3-venv could not be installed: {problem}")
        if made(interpreter, venv):
            return
    raise VenvFailed(HELP)


def made(interpreter, venv):
    """True if one of the ways to create an environment works and includes pip."""
    ways = [
        [interpreter, "-m", "venv"],
        [interpreter, "-m", "virtualenv", "-q"],
        ["virtualenv", "-q", "-p", interpreter],
    ]
    for way in ways:
        if shutil.which(way[0]) is None:
            continue
        done = subprocess.run([*way, str(venv)], capture_output=True, text=True)
        if done.returncode == 0 and (venv / "bin" / "pip").exists():
            return True
        shutil.rmtree(venv, ignore_errors=True)
    return False


def install(venv, say, environment):
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += environment.arguments
    for attempt in range(1, PIP_TRIES + 1):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            return
        say(f"pip, attempt {attempt} of {PIP_TRIES}:\n{done.stdout}")
        time.sleep(2 * attempt)
    raise VenvFailed("the Python packages of the tests could not be installed; pip's words are above")
