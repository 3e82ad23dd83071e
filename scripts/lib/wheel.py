"""A Python package that carries the binary: `pip install` makes the command `gateway`, which becomes the binary."""

import base64
import hashlib
import io
import time
import zipfile

import packing
from packing import Entry
from pyenv import ROOT

LAUNCHER = '''"""The gateway as a Python package: the command `gateway` and `python -m gateway` start the binary beside this file."""

import os
import sys


def binary():
    """The path of the binary."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "gateway")


def main():
    # The process becomes the gateway, so signals and exit status are its own.
    os.execv(binary(), ["gateway", *sys.argv[1:]])
'''
MODULE = '''"""`python -m gateway` starts the binary."""

from gateway import main

main()
'''


def build(release):
    """Returns the name of the wheel and its bytes."""
    tag = f"py3-none-{platform(release)}"
    info = f"gateway-{release.version}.dist-info"
    files = {
        "gateway/__init__.py": Entry(LAUNCHER.encode()),
        "gateway/__main__.py": Entry(MODULE.encode()),
        "gateway/gateway": Entry(release.binary, 0o755),
        f"{info}/METADATA": Entry(metadata(release).encode()),
        f"{info}/WHEEL": Entry(f"Wheel-Version: 1.0\nGenerator: scripts/dist\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()),
        f"{info}/entry_points.txt": Entry(b"[console_scripts]\ngateway = gateway:main\n"),
        f"{info}/licenses/LICENSE": Entry((ROOT / "LICENSE").read_bytes()),
        f"{info}/licenses/LICENCES.txt": Entry(release.licences),
        f"{info}/sboms/gateway.cdx.json": Entry(release.bill),
    }
    # pip wants the list of files last.
    files[f"{info}/RECORD"] = Entry(record(files, f"{info}/RECORD").encode())
    return f"gateway-{release.version}-{tag}.whl", archive(files, release)


def platform(release):
    """The platform of the tag. `manylinux_2_34` needs version 2.34 of the C library, or a later one."""
    if release.glibc:
        return f"manylinux_{release.glibc[0]}_{release.glibc[1]}_{release.machine}"
    return f"linux_{release.machine}"


def metadata(release):
    return (
        "Metadata-Version: 2.4\n"
        "Name: gateway\n"
        f"Version: {release.version}\n"
        f"Summary: {packing.SUMMARY}\n"
        "License-Expression: MIT\n"
        "License-File: LICENSE\n"
        "License-File: LICENCES.txt\n"
        "Requires-Python: >=3.8\n"
        "Description-Content-Type: text/markdown\n"
        "\n"
        "`gateway serve` starts the service and prints the address of its console.\n"
    )


def record(files, own):
    """The checksum and the size of each file; the list itself has none."""
    lines = []
    for name, entry in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(entry.data)}")
    return "\n".join([*lines, f"{own},,"]) + "\n"


def archive(files, release):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name, entry in files.items():
            info = zipfile.ZipInfo(name, time.gmtime(release.time)[:6])
            info.create_system = 3
            # A regular file with its mode, so that pip keeps the binary executable.
            info.external_attr = (0o100000 | entry.mode) << 16
            wheel.writestr(info, entry.data, zipfile.ZIP_DEFLATED, release.level)
    return packed.getvalue()
