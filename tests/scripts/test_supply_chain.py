"""scripts/audit and scripts/sbom: what is found, what is said to be unchecked, and what is listed."""

import base64
import re

from conftest import load

audit = load("audit")
sbom = load("sbom")

PACKAGES = {
    "": {"name": "console"},
    "node_modules/good": {"version": "1.0.0", "license": "MIT", "integrity": "sha512-" + base64.b64encode(b"x" * 64).decode()},
    "node_modules/a/node_modules/@scope/deep": {"version": "2.0.0", "license": "(GPL-3.0 OR MIT)", "integrity": "sha512-eA=="},
    "node_modules/tool": {"version": "3.0.0", "license": "GPL-3.0", "dev": True, "integrity": "sha512-eA=="},
}


def test_a_package_without_checksum_or_from_elsewhere_is_a_problem():
    locked = {path: package for path, package in PACKAGES.items() if path}
    assert audit.lock_problems(locked) == []
    locked["node_modules/loose"] = {"version": "1.0.0", "resolved": "https://example.com/loose.tgz"}
    problems = audit.lock_problems(locked)
    assert problems == ["node_modules/loose has no checksum", "node_modules/loose comes from https://example.com/loose.tgz"]


def test_only_shipped_packages_need_an_allowed_licence():
    locked = {path: package for path, package in PACKAGES.items() if path}
    assert audit.licence_problems(locked, {"MIT"}) == []
    locked["node_modules/viral"] = {"version": "1.0.0", "license": "GPL-3.0"}
    locked["node_modules/none"] = {"version": "1.0.0"}
    assert audit.licence_problems(locked, {"MIT"}) == [
        "node_modules/none has the licence none",
        "node_modules/viral has the licence GPL-3.0",
    ]


def test_what_cannot_be_checked_is_said_and_is_no_success(monkeypatch, capsys):
    monkeypatch.setattr(audit, "CHECKS", [("a", lambda: (audit.OK, ""))])
    assert audit.main() == 0
    monkeypatch.setattr(audit, "CHECKS", [("a", lambda: (audit.OK, "")), ("b", lambda: (audit.UNCHECKED, "no network"))])
    assert audit.main() == 2
    assert "NOT CHECKED: no network" in capsys.readouterr().out
    monkeypatch.setattr(audit, "CHECKS", [("b", lambda: (audit.UNCHECKED, "")), ("c", lambda: (audit.FAILED, "bad"))])
    assert audit.main() == 1


def test_a_missing_or_silent_tool_counts_as_unchecked(monkeypatch):
    class Done:
        returncode, stdout, stderr = 1, "", "no such command"

    monkeypatch.setattr(audit, "run", lambda *_, **__: Done)
    monkeypatch.setattr(audit.shutil, "which", lambda _: "/bin/npm")
    for check in (audit.crates, audit.advisories_of_crates, audit.advisories_of_packages):
        assert check()[0] == audit.UNCHECKED


def metadata():
    def package(name, licence="MIT"):
        return {"id": name, "name": name, "version": "1.0.0", "license": licence}

    def use(name, *kinds):
        return {"pkg": name, "dep_kinds": [{"kind": kind} for kind in kinds]}

    nodes = {
        "gateway": [use("core", None), use("testing", "dev"), use("builder", "build")],
        "core": [use("shared", None)],
        "builder": [use("shared", None)],
        "testing": [],
        "shared": [],
    }
    packages = [package("gateway"), package("core", "MIT/Apache-2.0"), package("builder"), package("testing"), package("shared")]
    return {"packages": packages, "resolve": {"nodes": [{"id": name, "deps": deps} for name, deps in nodes.items()]}}


def test_the_bill_lists_what_is_in_the_binary_and_what_built_it():
    checksums = [{"name": "core", "version": "1.0.0", "checksum": "ab" * 32}]
    bill = sbom.document(metadata(), checksums, PACKAGES, "x86_64-unknown-linux-gnu")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["type"] == "application"
    found = {component["purl"]: component for component in bill["components"]}
    assert set(found) == {
        "pkg:cargo/core@1.0.0", "pkg:cargo/builder@1.0.0", "pkg:cargo/shared@1.0.0",
        "pkg:npm/good@1.0.0", "pkg:npm/%40scope/deep@2.0.0",
    }
    core = found["pkg:cargo/core@1.0.0"]
    assert core["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert core["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    scopes = {ref: component["scope"] for ref, component in found.items()}
    assert scopes["pkg:cargo/builder@1.0.0"] == "excluded" and scopes["pkg:cargo/shared@1.0.0"] == "required"
    assert found["pkg:npm/good@1.0.0"]["hashes"] == [{"alg": "SHA-512", "content": b"x".hex() * 64}]
    refs = set(found) | {bill["metadata"]["component"]["bom-ref"]}
    for dependency in bill["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= refs
    again = sbom.document(metadata(), checksums, PACKAGES, "x86_64-unknown-linux-gnu")
    assert again == bill and re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
