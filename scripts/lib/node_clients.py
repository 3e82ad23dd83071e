"""The JavaScript clients of others, which the tests and the snippets of the documentation use: installed once below the
target directory from the lock file in tests/sdk/node."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from pyenv import ROOT, target_directory

SOURCE = ROOT / "tests/sdk/node"
STRIP_TYPES = Path(__file__).resolve().parent / "strip_types.cjs"
INSTALL_LIMIT_S = 300


def install():
    """Returns the directory that has the packages in node_modules."""
    target = target_directory()
    target.mkdir(parents=True, exist_ok=True)
    directory, lock = target / "node-clients", (SOURCE / "package-lock.json").read_text()
    stamp = directory / "stamp"
    with open(target / "node-clients.lock", "w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == lock):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCE / name, directory / name)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(command, cwd=directory, check=True, timeout=INSTALL_LIMIT_S)
            stamp.write_text(lock)
    return directory
