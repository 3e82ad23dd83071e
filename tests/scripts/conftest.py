"""The scripts under test, as modules and as programs, with the stand-in in place of the gateway."""

import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STANDIN = Path(__file__).resolve().parent / "standin.py"
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
# pytest closes its fixtures on Ctrl-C but not on SIGTERM, which would leave a process running.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def load(name):
    """Loads a script as a module. It has no suffix, so the loader is named explicitly."""
    path = str(ROOT / "scripts" / name)
    name = name.replace("-", "_")
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run(*command, **variables):
    """Runs a script. Returns its output and its exit status."""
    env = dict(os.environ, GATEWAY_BINARY=str(STANDIN), **variables)
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.fixture
def standin(monkeypatch):
    monkeypatch.setenv("GATEWAY_BINARY", str(STANDIN))
    monkeypatch.delenv("STANDIN_FLAW", raising=False)
    return monkeypatch
