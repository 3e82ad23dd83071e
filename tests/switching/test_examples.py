"""The configurations that LiteLLM itself comes with: each is planned, and every field of it is named in a finding."""

import json
from pathlib import Path

import pyenv
import yaml


def leaves(value, path=""):
    """The paths of all values that are not null or empty."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    elif value is not None:
        yield path


def unnamed(path, named):
    """Whether no finding is about the path or about something that it is a part of."""
    return not any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in named)


def test_every_field_of_litellms_own_examples_is_named(switched):
    programs = pyenv.ensure(lambda text: print(f"litellm: {text}", flush=True), pyenv.LITELLM)
    package = next(programs.parent.glob("lib/python*/site-packages/litellm"))
    found = {path: yaml.safe_load(path.read_text()) for path in sorted(Path(package, "proxy").rglob("*.yaml"))}
    configs = {path: config for path, config in found.items() if isinstance(config, dict) and config.get("model_list")}
    assert len(configs) >= 20, sorted(map(str, found))
    lost = {}
    models = 0
    for path, config in configs.items():
        body = {"source": "litellm", "data": path.read_text()}
        report = switched.api(f"/orgs/{switched.account['org']['id']}/import", body)
        models += len(report["plan"]["models"])
        named = {finding["path"] for finding in report["findings"]}
        missing = [leaf for leaf in leaves(config) if unnamed(leaf, named)]
        if missing:
            lost[path.name] = missing
        shown = json.dumps(report)
        assert "sk-1234" not in shown, f"a key of {path.name} is shown"
    assert not lost
    assert models >= len(configs)
