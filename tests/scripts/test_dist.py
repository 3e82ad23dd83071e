"""scripts/dist: what the packages of a release contain, that they install in an empty place, and that their bytes repeat.

A small script stands for the binary where only the packing is tested. The wheel and the npm package are also made of the
debug binary, and start it.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path
from urllib.request import Request

import deb
import npm
import packing
import pytest
import wheel
from conftest import ROOT, load
from elf import Program
from pyenv import target_directory
from running import Gateway, open_url

dist = load("dist")

STUB = """#!/bin/sh
case "$1" in
    init) printf '# listen = "127.0.0.1:8080"\\n# data_dir = "./data"\\n' > "$2" ;;
    man) echo '.TH gateway 1' ;;
    completions) echo "completions of $2" ;;
    *) echo "gateway 0.1.0" ;;
esac
"""
VERSION = "gateway 0.1.0\n"
TIME = 1_700_000_000
FIRST_ANSWER_LIMIT_S = 10
HAS_NODE = shutil.which("npm") is not None
HAS_DPKG = shutil.which("dpkg-deb") is not None


def stub(directory):
    path = directory / "gateway"
    path.write_text(STUB)
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A release whose binary is the stub."""
    directory = tmp_path_factory.mktemp("stub")
    binary = stub(directory)
    texts = packing.texts_of(binary, directory)
    made = dist.release_of(binary, dist.host(), texts)
    if not made.is_linux:
        pytest.skip("the packages are made for Linux only")
    return dataclasses.replace(made, time=TIME)


@pytest.fixture(scope="module")
def real(release):
    """The same release with the debug binary, hardly compressed."""
    binary = target_directory() / "debug" / "gateway"
    assert binary.exists(), f"{binary} is missing: run `cargo build -p gateway` first"
    return dataclasses.replace(release, binary=binary.read_bytes(), level=0)


@pytest.fixture
def scratch():
    """A directory that does not outlive the test: the debug binary is large, and pytest keeps its own directories."""
    with tempfile.TemporaryDirectory(prefix="gateway-dist-test-") as directory:
        yield Path(directory)


def built(package, release, directory):
    name, data = package.build(release)
    path = directory / name
    path.write_bytes(data)
    return path


class FirstStart(Gateway):
    """A gateway in an empty directory, with nothing set but a free port."""

    def environment(self):
        kept = {name: value for name, value in super().environment().items() if not name.startswith("GATEWAY_")}
        return kept | {"GATEWAY_LISTEN": "127.0.0.1:0"}


def run(*command, **options):
    options = {"timeout": 120, "check": False} | options
    return subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def test_a_release_has_all_packages_and_their_checksums(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GATEWAY_BINARY", str(stub(tmp_path)))
    monkeypatch.delenv("GATEWAY_PGO_PROFILE", raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(TIME))
    monkeypatch.setattr(dist, "DIST", tmp_path / "dist")
    monkeypatch.setattr(dist, "why_not", lambda target: "no compiler")
    assert dist.main() == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    sums = dict(reversed(line.split("  ")) for line in made["SHA256SUMS"].decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in made.items() if name != "SHA256SUMS"}
    own = dist.host()
    kinds = {f"gateway-0.1.0-{own}.tar.gz", f"gateway-0.1.0-{own}.cdx.json"}
    assert kinds <= set(sums)
    assert not own.endswith("-linux-gnu") or {Path(name).suffix for name in sums} == {".gz", ".json", ".deb", ".whl", ".tgz"}
    said = capsys.readouterr().out
    assert "built without a PGO profile" in said
    for target in set(dist.PLATFORMS) - {own}:
        assert f"{target} is left out: no compiler" in said
    assert dist.main() == 0
    again = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    assert again == made, "the same binary makes the same bytes"
    (tmp_path / "counts").write_bytes(b"counts")
    monkeypatch.setenv("GATEWAY_PGO_PROFILE", str(tmp_path / "counts"))
    assert dist.main() == 0
    assert gzip.decompress((tmp_path / "dist/gateway-0.1.0.profdata.gz").read_bytes()) == b"counts"
    assert "gateway-0.1.0.profdata.gz" in (tmp_path / "dist/SHA256SUMS").read_text()


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch, tmp_path):
    class Done:
        returncode, stdout = 0, str(tmp_path)

    monkeypatch.setattr(dist.subprocess, "run", lambda *_, **__: Done)
    target = "aarch64-unknown-linux-gnu"
    assert "rustup target add aarch64-unknown-linux-gnu" in dist.why_not(target)
    (tmp_path / "libstd-1.rlib").touch()
    monkeypatch.setattr(dist.shutil, "which", lambda _: None)
    assert "apt-get install gcc-aarch64-linux-gnu" in dist.why_not(target)
    monkeypatch.setattr(dist.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert dist.why_not(target) is None


def test_the_archive_has_manual_completions_unit_documentation_and_licences(release):
    with tarfile.open(fileobj=io.BytesIO(dist.archive("gateway", release))) as tar:
        entries = {entry.name.partition("/")[2]: entry for entry in tar.getmembers()}
        bill = json.load(tar.extractfile(entries["sbom.cdx.json"]))
        licences = tar.extractfile(entries["LICENCES.txt"]).read().decode()
    assert entries["gateway"].mode == 0o755
    assert {
        "LICENSE", "CHANGELOG.md", "docs/clients/python.md", "deploy/gateway.service", "gateway.toml.example",
        "man/man1/gateway.1", "completions/gateway.bash", "completions/_gateway", "completions/gateway.fish",
    } <= set(entries)
    assert {(entry.uid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, "root", TIME)}
    crates = [part for part in bill["components"] if part["purl"].startswith("pkg:cargo/tokio@")]
    assert f"tokio {crates[0]['version']}: MIT\n" in licences


def test_times_come_from_the_environment_or_the_last_commit(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    assert packing.release_time() == 1700000001
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert packing.release_time() == packing.OLDEST_TIME
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert packing.release_time() == packing.release_time() >= packing.OLDEST_TIME


def test_the_debug_binary_needs_only_what_every_system_has(real):
    program = Program(real.binary)
    packing.check_binary(real.binary, real.target)
    assert program.machine == real.machine and "libc.so.6" in program.libraries
    assert (2, 17) <= program.glibc < (3, 0)
    needed = run("ldd", target_directory() / "debug" / "gateway").stdout
    assert all(name in needed for name in program.libraries)
    other = "aarch64-unknown-linux-gnu" if real.machine == "x86_64" else "x86_64-unknown-linux-gnu"
    with pytest.raises(packing.Unfit, match="the binary is for"):
        packing.check_binary(real.binary, other)


def test_directories_of_this_machine_in_the_binary_are_named(tmp_path, monkeypatch, capsys):
    """The debug binary has them; `make dist` replaces them with names that are the same everywhere."""
    binary = stub(tmp_path)
    texts = packing.texts_of(binary, tmp_path)
    dist.release_of(binary, dist.host(), texts)
    assert "would differ" not in capsys.readouterr().out
    cargo = tmp_path / "cargo"
    monkeypatch.setenv("CARGO_HOME", str(cargo))
    binary.write_text(f"{STUB}# {ROOT}/crates/gateway/src/main.rs {cargo}/registry/src/a.rs")
    dist.release_of(binary, dist.host(), texts)
    said = capsys.readouterr().out
    assert f"contains {ROOT}:" in said and f"contains {cargo}:" in said


@pytest.mark.parametrize("target", ["build-dist", "bench"])
def test_make_replaces_the_directories_of_this_machine_in_what_is_shipped(target, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RUSTFLAGS": "--cfg given"}
    # Instead of cargo, what it would get. The console and the documentation count as built.
    shows = "CARGO=sh -c 'printf \"%s\\n\" $$RUSTFLAGS $$CFLAGS'"
    done = run("make", "--silent", "--old-file=console", "--old-file=docs", target, shows, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stdout
    shown = done.stdout.split()
    replaced = [f"{ROOT}=gateway", f"{ROOT}/target=target", f"{tmp_path}/.cargo=cargo"]
    assert [word.partition("=")[2] for word in shown if word.startswith("--remap-path-prefix=")][:3] == replaced
    assert [word.partition("=")[2] for word in shown if word.startswith("-ffile-prefix-map=")][:3] == replaced
    assert "given" in shown


def test_a_binary_with_another_library_is_refused(real, monkeypatch):
    monkeypatch.setattr(packing, "SYSTEM_LIBRARIES", packing.SYSTEM_LIBRARIES - {"libm.so.6"})
    with pytest.raises(packing.Unfit, match="needs libm.so.6"):
        packing.check_binary(real.binary, real.target)


@pytest.mark.skipif(not HAS_DPKG, reason="dpkg is not installed")
def test_dpkg_reads_the_package(release, tmp_path):
    package = built(deb, release, tmp_path)
    info = run("dpkg-deb", "--info", package)
    assert info.returncode == 0, info.stdout
    for text in ("Package: gateway", "Version: 0.1.0", "Depends: libc6, libgcc-s1, passwd, ca-certificates", "conffiles"):
        assert text in info.stdout
    listed = run("dpkg-deb", "--contents", package).stdout
    modes = {line.split()[-1]: line.split()[0] for line in listed.splitlines()}
    assert modes["./usr/bin/gateway"] == "-rwxr-xr-x"
    assert modes["./etc/gateway/gateway.toml"] == "-rw-------"
    for path in (
        "usr/share/man/man1/gateway.1.gz", "usr/share/bash-completion/completions/gateway",
        "usr/share/zsh/vendor-completions/_gateway", "usr/share/fish/vendor_completions.d/gateway.fish",
        "usr/lib/systemd/system/gateway.service", "usr/share/doc/gateway/LICENCES.txt",
        "usr/share/doc/gateway/copyright", "usr/share/doc/gateway/examples/gateway.toml",
        "usr/share/doc/gateway/examples/nginx-tls.conf",
    ):
        assert modes[f"./{path}"] == "-rw-r--r--"
    assert " root/root " in listed and " gateway/" not in listed


class Root:
    """An empty root directory for dpkg. Its scripts run outside of it and are told where it is."""

    def __init__(self, directory):
        self.path = directory / "root"
        for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"):
            (self.path / name).mkdir(parents=True)
        for name in ("var/lib/dpkg/status", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"):
            (self.path / name).touch()

    def dpkg(self, *arguments):
        # What the package depends on is not in an empty root.
        return run("dpkg", f"--root={self.path}", "--force-script-chrootless", "--force-depends", *arguments)

    def read(self, name):
        return (self.path / name).read_text()


@pytest.mark.skipif(
    not HAS_DPKG or os.geteuid() != 0 or not shutil.which("useradd"), reason="needs dpkg and the rights of root"
)
def test_dpkg_installs_upgrades_and_removes_the_package_in_an_empty_root(release, tmp_path):
    root = Root(tmp_path)
    done = root.dpkg("--install", built(deb, release, tmp_path))
    assert done.returncode == 0, done.stdout
    assert run(root.path / "usr/bin/gateway", "--version").stdout == VERSION
    user = root.read("etc/passwd")
    assert user.startswith("gateway:") and "/var/lib/gateway:/usr/sbin/nologin" in user
    assert "gateway:" in root.read("etc/group")
    # Neither enabled nor started, and no data yet.
    assert not list((root.path / "etc").rglob("*.wants")) and not (root.path / "var/lib/gateway").exists()
    assert run("dpkg", f"--root={root.path}", "--verify", "gateway").stdout == ""

    config = root.path / "etc/gateway/gateway.toml"
    # Commands in a shell find the data of the service, and run as its user.
    assert 'data_dir = "/var/lib/gateway"\n' in config.read_text()
    group = root.read("etc/group").split("gateway:")[1].split(":")[1]
    assert (config.stat().st_mode & 0o777, config.stat().st_gid) == (0o640, int(group))
    config.write_text('listen = "127.0.0.1:9000"\n')
    config.chmod(0o600)
    later = dataclasses.replace(release, version="0.2.0")
    done = root.dpkg("--install", built(deb, later, tmp_path))
    assert done.returncode == 0, done.stdout
    assert config.read_text() == 'listen = "127.0.0.1:9000"\n', "the configuration of the operator stays"
    assert config.stat().st_mode & 0o777 == 0o640, "version 0.1.0 let only root read it"
    config.chmod(0o600)
    assert root.dpkg("--install", built(deb, dataclasses.replace(release, version="0.3.0"), tmp_path)).returncode == 0
    assert config.stat().st_mode & 0o777 == 0o600, "and so does its mode"
    assert root.read("etc/passwd") == user

    (root.path / "var/lib/gateway").mkdir()
    (root.path / "var/lib/gateway/gateway.db").touch()
    assert root.dpkg("--remove", "gateway").returncode == 0
    assert config.exists() and not (root.path / "usr/bin/gateway").exists()
    done = root.dpkg("--purge", "gateway")
    assert done.returncode == 0 and "the data is still in /var/lib/gateway" in done.stdout
    assert not config.exists() and (root.path / "var/lib/gateway/gateway.db").exists()


def test_the_unit_of_the_package_has_its_paths_and_user():
    unit = deb.unit().decode()
    lines = unit.splitlines()
    assert "ExecStart=/usr/bin/gateway serve" in lines and "User=gateway" in lines
    assert "LoadCredential=gateway.toml:/etc/gateway/gateway.toml" in lines
    assert "DynamicUser" not in unit and "/usr/local" not in unit
    # What a dynamic user would bring along has to be said.
    for line in ("ProtectSystem=strict", "PrivateTmp=yes", "NoNewPrivileges=yes", "RemoveIPC=yes", "RestrictSUIDSGID=yes"):
        assert line in lines


def test_the_settings_of_the_package_name_the_data_of_the_unit(tmp_path):
    assert f"Environment=GATEWAY_DATA_DIR={deb.DATA}" in deb.unit().decode().splitlines()
    binary, file = target_directory() / "debug" / "gateway", tmp_path / "packaged.toml"
    file.write_bytes(deb.settings(packing.texts_of(binary, tmp_path)["gateway.toml"]))
    env = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    shown = run(binary, "config", "--config", file, env=env, cwd=tmp_path)
    assert shown.returncode == 0 and f'data_dir = "{deb.DATA}"  # file' in shown.stdout, shown.stdout
    assert shown.stdout.count("  # file") == 1 and not (tmp_path / "data").exists()
    pytest.raises(packing.Unfit, deb.settings, b"# data_dir = '/elsewhere'\n").match("data_dir")


@pytest.mark.parametrize("name", deb.SCRIPTS)
def test_the_maintainer_scripts_are_valid_and_start_nothing(name):
    path = ROOT / "deploy/debian" / name
    assert run("sh", "-n", path).returncode == 0
    for line in path.read_text().splitlines():
        command = line.strip()
        assert not command.startswith(("systemctl start", "systemctl restart", "systemctl enable"))


def test_the_wheel_is_complete_and_has_the_tag_of_its_platform(release, real):
    assert wheel.platform(release) == f"linux_{release.machine}"
    major, minor = real.glibc
    assert wheel.platform(real) == f"manylinux_{major}_{minor}_{real.machine}"
    name, data = wheel.build(release)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        record = archive.read("gateway-0.1.0.dist-info/RECORD").decode()
        tag = archive.read("gateway-0.1.0.dist-info/WHEEL").decode()
        assert archive.getinfo("gateway/gateway").external_attr >> 16 == 0o100755
    assert [line.rpartition(",sha256=")[0] or line.split(",")[0] for line in record.splitlines()] == names
    assert f"Tag: {name.removesuffix('.whl').removeprefix('gateway-0.1.0-')}\n" in tag


@pytest.fixture(scope="module")
def venv(real):
    """An environment in which pip has installed the wheel, without a network."""
    with tempfile.TemporaryDirectory(prefix="gateway-dist-test-") as directory:
        package, venv = built(wheel, real, Path(directory)), Path(directory) / "venv"
        assert run(sys.executable, "-m", "venv", venv).returncode == 0
        pip = (venv / "bin/python", "-m", "pip", "install", "--no-index", "--no-cache-dir", "--disable-pip-version-check")
        done = run(*pip, package)
        assert done.returncode == 0, done.stdout
        yield venv


def test_pip_installs_the_wheel_and_its_command_is_the_binary(venv):
    assert run(venv / "bin/gateway", "--version").stdout == VERSION
    assert run(venv / "bin/python", "-m", "gateway", "--version").stdout == VERSION
    wrong = run(venv / "bin/gateway", "no-such-command")
    assert wrong.returncode == 2 and "no-such-command" in wrong.stdout


def test_the_first_answer_of_an_installed_package_takes_less_than_ten_seconds(venv):
    began = time.monotonic()
    with FirstStart(binary=venv / "bin/gateway") as gateway:
        headers = {"Authorization": f"Bearer {gateway.signup()['api_key']}", "Content-Type": "application/json"}
        body = {"model": "sandbox/sandbox-small", "messages": [{"role": "user", "content": "hello"}]}
        with open_url(Request(gateway.url + "/sdk/v1/chat/completions", json.dumps(body).encode(), headers)) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"]
        took = time.monotonic() - began
        print(f"from the start of the installed package to the first answer: {took:.1f} s")
        assert took < FIRST_ANSWER_LIMIT_S and (gateway.data / "gateway.db").exists()


@pytest.mark.skipif(not HAS_NODE, reason="Node.js is not installed")
def test_npm_installs_the_package_and_npx_starts_the_binary(real, scratch):
    package = built(npm, real, scratch)
    project = scratch / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "test", "private": true}\n')
    env = dict(os.environ, npm_config_cache=str(scratch / "cache"), npm_config_update_notifier="false")
    done = run("npm", "install", "--offline", "--no-audit", "--no-fund", package, cwd=project, env=env)
    assert done.returncode == 0, done.stdout
    assert run(project / "node_modules/.bin/gateway", "--version").stdout == VERSION
    for command in (["--no-install", "gateway"], ["--yes", f"../{package.name}"]):
        started = run("npx", "--offline", *command, "--version", cwd=project, env=env)
        assert started.returncode == 0 and started.stdout.endswith(VERSION), started.stdout


def test_the_npm_package_is_only_for_its_platform(release):
    described = npm.description(release)
    assert described["os"] == ["linux"] and described["libc"] == ["glibc"]
    assert npm.description(dataclasses.replace(release, target="aarch64-unknown-linux-gnu"))["cpu"] == ["arm64"]


@pytest.mark.parametrize("package", [deb, wheel, npm], ids=lambda package: package.__name__)
def test_the_same_content_makes_the_same_bytes_and_the_time_is_that_of_the_release(release, package):
    first = package.build(release)
    assert package.build(release) == first
    assert package.build(dataclasses.replace(release, time=TIME + 86400))[1] != first[1]
