"""What the packages of a release are made of, and archives whose bytes depend on nothing but their content."""

import gzip
import hashlib
import io
import lzma
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from elf import Program
from pyenv import ROOT

# The oldest time that a zip archive can hold.
OLDEST_TIME = 315532800
SUMMARY = "AI gateway with a management API and a web console"
# What every Linux with the GNU C library has. Everything else is linked into the program.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"}


class Unfit(Exception):
    """A binary that cannot be released."""


@dataclass(frozen=True)
class Release:
    """One binary with what belongs to it. `level` is the effort of the compression, 0 to 9."""

    version: str
    target: str
    binary: bytes
    texts: dict  # made by the binary: manual page, completions, configuration
    bill: bytes
    licences: bytes
    time: int
    level: int = 9

    @property
    def machine(self):
        return self.target.partition("-")[0]

    @property
    def is_linux(self):
        return self.target.endswith("-linux-gnu")

    @property
    def glibc(self):
        """The oldest version of the C library with which the binary starts, as (2, 34), or None for a script."""
        return Program(self.binary).glibc


@dataclass(frozen=True)
class Entry:
    data: bytes
    mode: int = 0o644


def release_time():
    """SOURCE_DATE_EPOCH, else the time of the last commit, so that the same sources have the same time."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(int(given), OLDEST_TIME)
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return OLDEST_TIME
    return max(int(done.stdout), OLDEST_TIME) if done.returncode == 0 else OLDEST_TIME


def check_binary(data, target):
    """Raises `Unfit` if the binary is for another machine or needs a library that not every system has."""
    program = Program(data)
    if program.machine not in (None, target.partition("-")[0]):
        raise Unfit(f"the binary is for {program.machine}, not for {target}")
    if missing := set(program.libraries) - SYSTEM_LIBRARIES:
        # The loader of the C library has a name for each machine.
        if missing := sorted(name for name in missing if not name.startswith("ld-linux")):
            raise Unfit(f"the binary needs {', '.join(missing)}, which not every system has; link them statically")


def local_paths(data, directories):
    """The directories that the binary names. Built in other ones, it would have other bytes."""
    return [str(directory) for directory in directories if os.fsencode(f"{directory}/") in data]


def texts_of(binary, scratch):
    """The manual page, the completions and the configuration file, which the binary prints itself."""

    def printed(*arguments):
        done = subprocess.run([str(binary), *arguments], stdout=subprocess.PIPE, check=True, timeout=60)
        return done.stdout

    config = Path(scratch) / "gateway.toml"
    printed("init", str(config))
    return {
        "gateway.1": printed("man"),
        "gateway.bash": printed("completions", "bash"),
        "_gateway": printed("completions", "zsh"),
        "gateway.fish": printed("completions", "fish"),
        "gateway.toml": config.read_bytes(),
    }


def licence_list(bill):
    """Name, version and licence of everything that is in the binary, one a line."""
    lines = ["The licence of the gateway is in LICENSE. The binary contains these works of others:", ""]
    for part in bill["components"]:
        if part.get("scope") != "excluded":
            named = " AND ".join(one["expression"] for one in part.get("licenses", [])) or "not named"
            lines.append(f"{part['name']} {part['version']}: {named}")
    return ("\n".join(lines) + "\n").encode()


def deploy_files():
    """The files of `deploy/` that an operator uses, by name."""
    paths = [path for path in (ROOT / "deploy").iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in sorted(paths)}


def tar(entries, time, directories=None):
    """An archive of the entries in the order of their names, owned by root. `directories` maps more names to modes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted({*entries, *(directories or {})}):
            info = tarfile.TarInfo(name)
            info.mtime, info.uname, info.gname = time, "root", "root"
            if entry := entries.get(name):
                info.size, info.mode = len(entry.data), entry.mode
                archive.addfile(info, io.BytesIO(entry.data))
            else:
                info.type, info.mode = tarfile.DIRTYPE, directories[name]
                archive.addfile(info)
    return packed.getvalue()


def gzipped(data, level=9):
    packed = io.BytesIO()
    # Without a time and a name in the header.
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=level, mtime=0) as compressed:
        compressed.write(data)
    return packed.getvalue()


def xz(data, level=6):
    return lzma.compress(data, preset=min(level, 6))


def sha256(data):
    return hashlib.sha256(data).hexdigest()
