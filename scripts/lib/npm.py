"""An npm package that carries the binary: `npx` and `npm install` make the command `gateway`."""

import json

import packing
from packing import Entry
from pyenv import ROOT

# Names of Node.js.
PROCESSORS = {"x86_64": "x64", "aarch64": "arm64"}
README = "# Gateway\n\n`npx gateway serve` starts the service and prints the address of its console.\n"


def build(release):
    """Returns the name of the package and its bytes, in the format of `npm pack`."""
    files = {
        "package.json": Entry((json.dumps(description(release), indent=2) + "\n").encode()),
        # The command is the binary itself: no process of Node.js stands between it and its signals.
        "bin/gateway": Entry(release.binary, 0o755),
        "README.md": Entry(README.encode()),
        "LICENSE": Entry((ROOT / "LICENSE").read_bytes()),
        "LICENCES.txt": Entry(release.licences),
        "sbom.cdx.json": Entry(release.bill),
    }
    packed = packing.tar({f"package/{name}": entry for name, entry in files.items()}, release.time)
    name = f"gateway-{release.version}-npm-linux-{PROCESSORS[release.machine]}.tgz"
    return name, packing.gzipped(packed, release.level)


def description(release):
    return {
        "name": "gateway",
        "version": release.version,
        "description": packing.SUMMARY,
        "license": "MIT",
        "os": ["linux"],
        "cpu": [PROCESSORS[release.machine]],
        # Alpine and others with another C library cannot start it.
        "libc": ["glibc"],
        "bin": {"gateway": "bin/gateway"},
    }
