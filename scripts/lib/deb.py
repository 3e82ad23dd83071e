"""A package for Debian and Ubuntu. It is written here and not by dpkg-deb, which not every machine has."""

import hashlib

import packing
from packing import Entry
from pyenv import ROOT

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
SCRIPTS = ("postinst", "prerm", "postrm")
CONFIG = "etc/gateway/gateway.toml"
DOCS = "usr/share/doc/gateway"
UNIT = "usr/lib/systemd/system/gateway.service"
# The unit says the same. Commands in a shell have it from the file only.
DATA = "/var/lib/gateway"


def build(release):
    """Returns the name of the package and its bytes."""
    files = content(release)
    data = packing.tar(
        {f"./{path}": entry for path, entry in files.items()}, release.time, parents(files)
    )
    control = packing.tar(
        {f"./{name}": entry for name, entry in control_files(release, files).items()}, release.time, {"./": 0o755}
    )
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", packing.gzipped(control)),
        ("data.tar.xz", packing.xz(data, release.level)),
    ]
    name = f"gateway_{release.version}_{ARCHITECTURES[release.machine]}.deb"
    return name, archive(members, release.time)


def content(release):
    """The installed files by their paths."""
    texts = release.texts
    files = {
        "usr/bin/gateway": Entry(release.binary, 0o755),
        "usr/share/man/man1/gateway.1.gz": Entry(packing.gzipped(texts["gateway.1"])),
        "usr/share/bash-completion/completions/gateway": Entry(texts["gateway.bash"]),
        "usr/share/zsh/vendor-completions/_gateway": Entry(texts["_gateway"]),
        "usr/share/fish/vendor_completions.d/gateway.fish": Entry(texts["gateway.fish"]),
        UNIT: Entry(unit()),
        # It will have secrets: root can read it, and postinst lets the user of the service read it.
        CONFIG: Entry(settings(texts["gateway.toml"]), 0o600),
        f"{DOCS}/copyright": Entry((ROOT / "LICENSE").read_bytes()),
        f"{DOCS}/LICENCES.txt": Entry(release.licences),
        f"{DOCS}/changelog.gz": Entry(packing.gzipped((ROOT / "CHANGELOG.md").read_bytes())),
        f"{DOCS}/sbom.cdx.json.gz": Entry(packing.gzipped(release.bill)),
        f"{DOCS}/examples/gateway.toml": Entry(texts["gateway.toml"]),
    }
    examples = {name: data for name, data in packing.deploy_files().items() if name != "gateway.service"}
    return files | {f"{DOCS}/examples/{name}": Entry(data) for name, data in examples.items()}


def settings(text):
    """The example with the place of the data, which `gateway upgrade-check` and other commands need too."""
    return changed("gateway.toml", text.decode(), {'# data_dir = "./data"\n': f'data_dir = "{DATA}"\n'}).encode()


def changed(name, text, changes):
    """The text with each part replaced, which must be there once."""
    for old, new in changes.items():
        if text.count(old) != 1:
            raise packing.Unfit(f"{name} must have the line {old.strip()} once")
        text = text.replace(old, new)
    return text


def unit():
    """The unit of `deploy/`, with the paths of the package and its permanent user in place of a dynamic one."""
    text = (ROOT / "deploy/gateway.service").read_text()
    start = text.index("[Unit]")
    comment = (
        "# Settings and secrets are in /etc/gateway/gateway.toml, which only root and the user gateway can read. Commands\n"
        "# find them there: `sudo -u gateway gateway upgrade-check`. Changes of this unit belong into `systemctl edit\n"
        "# gateway`; settings in it are not seen by commands.\n"
    )
    text = comment + text[start:]
    changes = {
        "ExecStart=/usr/local/bin/gateway serve": "ExecStart=/usr/bin/gateway serve",
        "DynamicUser=yes": "User=gateway\nGroup=gateway",
    }
    return changed("deploy/gateway.service", text, changes).encode()


def parents(files):
    """The directories of the files. dpkg creates only those that the archive names."""
    found = {"./": 0o755}
    for path in files:
        parts = path.split("/")[:-1]
        found |= {"./" + "/".join(parts[:count]) + "/": 0o755 for count in range(1, len(parts) + 1)}
    return found


def control_files(release, files):
    # Checksums for `dpkg --verify`, which knows only this kind. Configuration is compared separately.
    sums = "".join(
        f"{hashlib.md5(entry.data, usedforsecurity=False).hexdigest()}  {path}\n"
        for path, entry in sorted(files.items())
        if path != CONFIG
    )
    scripts = {name: Entry((ROOT / "deploy/debian" / name).read_bytes(), 0o755) for name in SCRIPTS}
    return scripts | {
        "control": Entry(control(release, files).encode()),
        "conffiles": Entry(f"/{CONFIG}\n".encode()),
        "md5sums": Entry(sums.encode()),
    }


def control(release, files):
    libc = f"libc6 (>= {release.glibc[0]}.{release.glibc[1]})" if release.glibc else "libc6"
    size = sum(-(-len(entry.data) // 1024) for entry in files.values())
    return (
        "Package: gateway\n"
        f"Version: {release.version}\n"
        f"Architecture: {ARCHITECTURES[release.machine]}\n"
        "Maintainer: the gateway contributors\n"
        f"Installed-Size: {size}\n"
        # useradd creates the user; providers are called with the certificates of the system.
        f"Depends: {libc}, libgcc-s1, passwd, ca-certificates\n"
        "Section: net\n"
        "Priority: optional\n"
        f"Description: {packing.SUMMARY}\n"
        " One binary in front of the APIs of AI providers: routing and fallbacks, caching,\n"
        " budgets, logs, prompts and evals. The service is neither enabled nor started by\n"
        " the installation: `systemctl enable --now gateway` does both.\n"
    )


def archive(members, time):
    """The members in the format of ar."""
    packed = b"!<arch>\n"
    for name, data in members:
        packed += f"{name:<16}{time:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        packed += data + b"\n" * (len(data) % 2)
    return packed
