"""The recipe of the container image, checked without a container engine: what it copies exists, what it runs is defined, and
the image has the settings, ports and user that the documentation promises."""

import fnmatch
import json
import re
import shlex

import node
import pytest
from conftest import ROOT

KNOWN = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD", "USER"}


class Stage:
    def __init__(self, image, name):
        self.image, self.name, self.steps = image, name, []

    def values(self, instruction):
        return [value for kind, value in self.steps if kind == instruction]


def instructions(text):
    """The instructions with their values; comments are left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def stages(text):
    """The arguments before the first stage, and the stages with their base images."""
    arguments, found = {}, []
    for kind, value in instructions(text):
        if kind == "ARG" and not found:
            name, _, default = value.partition("=")
            arguments[name] = default
        elif kind == "FROM":
            image, _, name = value.partition(" AS ")
            found.append(Stage(re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], image), name or None))
        else:
            found[-1].steps.append((kind, value))
    return arguments, found


RECIPE = (ROOT / "deploy/Dockerfile").read_text()
ARGUMENTS, STAGES = stages(RECIPE)
BY_NAME = {stage.name: stage for stage in STAGES}


def copies(stage):
    """Stage or None, sources and target of each copied thing."""
    for value in stage.values("COPY"):
        words = shlex.split(value)
        options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        *sources, target = [word for word in words if not word.startswith("--")]
        yield options.get("from"), sources, target


def is_ignored(path):
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    parents = ["/".join(path.split("/")[:count]) for count in range(1, path.count("/") + 2)]
    return any(fnmatch.fnmatch(parent, pattern) for parent in parents for pattern in patterns)


def test_only_known_instructions_are_used():
    # Among others no ADD, which fetches and unpacks, and no MAINTAINER.
    assert {kind for kind, _ in instructions(RECIPE)} <= KNOWN
    assert [stage.name for stage in STAGES] == ["console", "build", None]


def test_images_have_versions_that_fit_the_sources_and_each_other():
    for name, image in ARGUMENTS.items():
        tag = image.rpartition(":")[2]
        assert ":" in image and tag != "latest", f"{name} needs a version"
    rust = re.search(r'^rust-version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert f":{rust}-" in BY_NAME["build"].image
    major = int(re.search(r":(\d+)-", BY_NAME["console"].image)[1])
    assert major >= node.OLDEST[0]
    # The binary needs a C library that is as new as that of the image in which it was built.
    assert BY_NAME["build"].image.endswith("-bookworm") and "debian12" in STAGES[-1].image


def test_what_is_copied_exists_and_is_not_ignored():
    for stage in STAGES:
        for source_stage, sources, _ in copies(stage):
            for source in sources:
                if source_stage is None:
                    assert (ROOT / source).exists(), source
                    assert not is_ignored(source.rstrip("/")), f"{source} is in .dockerignore"
                else:
                    assert source_stage in BY_NAME, source_stage
                    assert source.startswith("/"), source


def test_what_later_stages_take_is_made_by_the_earlier_ones():
    taken = [source for _, sources, _ in copies(BY_NAME["build"]) for source in sources if source.startswith("/")]
    assert taken == ["/src/console/dist", "/src/site/dist"]
    assert is_ignored("console/dist") and is_ignored("site/dist"), "the image must not get what lies around here"
    run = " ".join(BY_NAME["build"].values("RUN"))
    for _, sources, _ in copies(STAGES[-1]):
        for source in sources:
            assert re.search(rf"(cp \S+|mkdir) {source}\b", run), f"{source} is not made"


@pytest.mark.parametrize("directory", ["console", "site"])
def test_packages_are_installed_as_locked_and_their_steps_exist(directory):
    at, step = None, None
    for kind, value in BY_NAME["console"].steps:
        at = value if kind == "WORKDIR" else at
        if kind == "RUN" and at == f"/src/{directory}" and value.startswith("npm run "):
            step = value.removeprefix("npm run ")
    assert step in json.loads((ROOT / directory / "package.json").read_text())["scripts"]
    installs = [value for kind, value in BY_NAME["console"].steps if kind == "RUN" and "npm run" not in value]
    assert len(installs) == 2 and all(value.startswith("npm ci ") for value in installs)


def test_the_binary_is_the_shipped_one_with_console_and_documentation():
    (build,) = BY_NAME["build"].values("RUN")
    assert "cargo build --locked --profile dist -p gateway" in build
    assert "GATEWAY_REQUIRE_CONSOLE=1" in build and "target/dist/gateway" in build


def test_the_image_runs_as_nobody_and_its_settings_fit_its_ports_and_volume():
    last = STAGES[-1]
    assert last.image.endswith(":nonroot") and not last.values("RUN") and not last.values("USER")
    env = dict(word.split("=", 1) for value in last.values("ENV") for word in shlex.split(value))
    settings = (ROOT / "docs/configuration.md").read_text()
    assert all(f"`{name}`" in settings for name in env)
    assert not any("KEY" in name or "SECRET" in name for name in env)
    ports = {env[name].rpartition(":")[2] for name in ("GATEWAY_LISTEN", "GATEWAY_ADMIN_LISTEN")}
    assert {port for value in last.values("EXPOSE") for port in value.split()} == ports
    assert last.values("VOLUME") == [env["GATEWAY_DATA_DIR"]]
    owned = [value for value in last.values("COPY") if value.endswith(env["GATEWAY_DATA_DIR"])]
    assert len(owned) == 1 and "--chown=65532:65532" in owned[0], "a volume gets the owner of its directory"
    # Without a shell: the process gets the signals itself.
    assert json.loads(last.values("ENTRYPOINT")[0]) == ["/usr/local/bin/gateway"]
    assert json.loads(last.values("CMD")[0]) == ["serve"]
    assert "/usr/local/bin/gateway" in [target for _, _, target in copies(last)]


def test_files_that_the_compose_file_mounts_and_builds_exist():
    compose = (ROOT / "deploy/compose.yaml").read_text()
    assert re.findall(r"dockerfile: (\S+)", compose) == ["deploy/Dockerfile"]
    mounted = re.findall(r'"\./([^:"]+):', compose)
    assert mounted and all((ROOT / "deploy" / name).exists() for name in mounted)


def test_problems_are_noticed():
    _, (one, two) = stages("ARG BASE=a:1\nFROM ${BASE} AS one\nRUN x && \\\n  y\n# RUN z\nFROM b\nCOPY --from=one /p /q\n")
    assert (one.image, one.name, one.steps) == ("a:1", "one", [("RUN", "x && y")])
    assert list(copies(two)) == [("one", ["/p"], "/q")]
    assert is_ignored("target") and is_ignored("console/node_modules/x/y.js") and not is_ignored("crates/gateway")
