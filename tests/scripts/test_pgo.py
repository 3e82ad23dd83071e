"""scripts/pgo and the flags with which make builds what is shipped.

A script stands for the compiler, the benchmark and the tool that merges: what is built takes many minutes.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, load

pgo = load("pgo")

RUSTC = """#!/bin/sh
case "$1" in
    -vV) printf 'host: x86_64-test\\nLLVM version: 22.1.2\\n' ;;
    *) echo "$SYSROOT" ;;
esac
"""
MERGER = """#!/bin/sh
case "$1" in
    --version) echo "  LLVM version $LLVM_FOUND-rust" ;;
    merge) shift 2; file=$1; shift; cat "$@" > "$file" ;;
esac
"""
# Writes counts as a gateway with counters does when it ends.
CARGO = """#!/bin/sh
echo "$RUSTFLAGS | $*" >> "$CALLS"
case "$*" in
    *gateway-bench*) printf '#!/bin/sh\\necho "bench $*" >> "$CALLS"\\n%s\\n' "$TRAINING" > "$CARGO_TARGET_DIR/debug/gateway-bench"
        chmod +x "$CARGO_TARGET_DIR/debug/gateway-bench" ;;
    *) mkdir -p "$CARGO_TARGET_DIR/pgo/counts"; echo of-a-build-script > "$CARGO_TARGET_DIR/pgo/counts/a.profraw" ;;
esac
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Programs instead of the real ones, and the file of their calls."""
    program(tmp_path / "bin/rustc", RUSTC)
    program(tmp_path / "bin/cargo", CARGO)
    program(tmp_path / "sysroot/lib/rustlib/x86_64-test/bin/llvm-profdata", MERGER)
    (tmp_path / "target/debug").mkdir(parents=True)
    counts = tmp_path / "target/pgo/counts"
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("SYSROOT", str(tmp_path / "sysroot"))
    monkeypatch.setenv("LLVM_FOUND", "22.1.2")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "target"))
    monkeypatch.setenv("RUSTFLAGS", "--cfg given")
    monkeypatch.setenv("TRAINING", f"mkdir -p {counts}; echo first > {counts}/1.profraw; echo second > {counts}/2.profraw")
    monkeypatch.delenv("LLVM_PROFDATA", raising=False)
    monkeypatch.setattr(pgo, "unwind_on_signals", lambda: None)
    return tmp_path


def test_the_counts_of_the_training_are_merged(tools):
    file = tools / "made/gateway.profdata"
    assert pgo.main([str(file)]) == 0
    assert file.read_text() == "first\nsecond\n", "without the counts of build scripts"
    instrumented, bench, training = (tools / "calls").read_text().splitlines()
    assert f"--cfg given -Cprofile-generate={tools}/target/pgo/counts | build" in instrumented
    assert bench.startswith(" | build"), "the benchmark has no counters"
    assert f"--gateway {tools}/target/pgo/dist/gateway" in training and "--no-nginx" in training


def test_counters_and_release_name_functions_alike(tmp_path, monkeypatch):
    """Cargo derives the names from the settings of the profile. Counts of functions with other names are not used, silently."""
    calls = []
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    monkeypatch.setattr(pgo, "step", lambda _, command, env: calls.append((command, env)))
    pgo.with_counters(tmp_path / "counts")
    release = ["cargo", "build", "--locked", "--profile", "dist", "-p", "gateway"]
    calls.append((release, dict(os.environ, RUSTFLAGS="")))
    assert len({names_of(command, env) for command, env in calls}) == 1


def names_of(command, env):
    """What the names of functions are derived from, of a small crate instead of the gateway."""
    crate = "itoa"
    command = [crate if word == "gateway" else word for word in command]
    done = subprocess.run([*command, "--verbose"], cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    return re.search(rf"--crate-name {crate} .*? -C metadata=(\w+)", done.stderr).group(1)


def test_a_failed_training_makes_no_profile(tools, monkeypatch):
    monkeypatch.setenv("TRAINING", "exit 3")
    with pytest.raises(pgo.Failed, match="the training failed with status 3"):
        pgo.main([str(tools / "file")])
    assert not (tools / "file").exists()


def test_a_gateway_without_counts_is_an_error(tools, monkeypatch):
    monkeypatch.setenv("TRAINING", "true")
    with pytest.raises(pgo.Failed, match="wrote no counts"):
        pgo.main([str(tools / "file")])


def test_a_missing_tool_is_named_with_its_remedy(tools, monkeypatch, capsys):
    (tools / "file").write_text("an earlier profile")
    monkeypatch.setenv("LLVM_FOUND", "21.0.0")
    assert pgo.main([str(tools / "file")]) == 0
    said = capsys.readouterr().out
    assert "llvm-profdata of LLVM 22" in said and "rustup component add llvm-tools" in said
    assert "without profile-guided optimization" in said
    assert not (tools / "file").exists(), "an earlier profile does not fit the sources"
    assert not (tools / "calls").exists(), "nothing is built"


def test_another_tool_can_be_named(tools, monkeypatch):
    program(tools / "other", MERGER)
    monkeypatch.setenv("LLVM_PROFDATA", str(tools / "other"))
    assert pgo.find_merger() == (str(tools / "other"), None)


def flags_of(directory, *arguments):
    """The flags that cargo would get, if the console and the documentation count as built."""
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "CARGO_TARGET_DIR": str(directory / "target")}
    shows = "CARGO=sh -c 'printf \"%s\\n\" $$RUSTFLAGS'"
    command = ["make", "--silent", "--old-file=console", "--old-file=docs", *arguments, shows]
    done = subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("target", ["build-dist", "bench"])
def test_make_builds_with_the_profile_that_is_there(target, tmp_path):
    assert "-Cprofile-use" not in flags_of(tmp_path, target)
    made = tmp_path / "target/pgo/gateway.profdata"
    made.parent.mkdir(parents=True)
    made.touch()
    assert f"-Cprofile-use={made}" in flags_of(tmp_path, target)
    assert "-Cprofile-use" not in flags_of(tmp_path, target, "PGO_PROFILE=")
    assert "-Cprofile-use=/given/profdata" in flags_of(tmp_path, target, "PGO_PROFILE=/given/profdata")


def test_a_given_profile_is_not_made_again(tmp_path):
    assert flags_of(tmp_path, "pgo", "PGO_PROFILE=/given/profdata") == ""
    assert not Path(tmp_path / "target/pgo").exists()
