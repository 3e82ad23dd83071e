"""What the documentation must have: a README that a newcomer can follow without a compiler, a page for each thing that
people look for, and blocks of JSON and TOML that can be copied."""

import json
import re
import tomllib

import pytest
from conftest import ROOT

MAX_LINES = 120
TOOLCHAIN = re.compile(r"\b(cargo|rustc|make|gcc|docker)\b")
BLOCK = re.compile(r"^```sh.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^ {0,3}```([^\n]*)\n(.*?)^ {0,3}```[ \t]*$", re.MULTILINE | re.DOTALL)
# What a reader must replace is inside of a string, such as "your-own-key": the block around it parses.
PARSERS = {"json": json.loads, "toml": tomllib.loads}
# How many blocks of a page are not run. No new one: a block that cannot run is no `sh` block but `text`.
NOT_RUN = {
    "CONTRIBUTING.md": 1,  # tests
    "README.md": 1,  # files of a release
    "docs/agents.md": 1,  # Claude Code
    "docs/audit.md": 1,  # a key from elsewhere
    "docs/datasets.md": 1,  # rows of a month
    "docs/operations.md": 1,  # files of a release
    "docs/skills.md": 1,  # links that the operator has to allow, and other programs
    "docs/switching.md": 1,  # a file of the other gateway
    "docs/switching/litellm.md": 1,  # a file of the other gateway
}
PAGES = {
    "clients": "curl python typescript langchain vercel-ai-sdk claude-code codex cursor open-webui",
    "providers": (
        "openai anthropic gemini azure-openai bedrock vertex mistral cohere groq together fireworks deepseek xai "
        "perplexity openrouter cerebras nvidia huggingface ollama vllm lmstudio sandbox"
    ),
    "switching": "litellm portkey openrouter helicone bifrost",
    ".": (
        "concepts routing caching budgets evals skills webhooks switching operations security errors upgrading cli api/index "
        "models limits proxy sdk logs prompts"
    ),
}


def test_the_readme_is_short_and_its_first_block_needs_no_toolchain():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < MAX_LINES
    first = BLOCK.search(readme)[1]
    assert "gateway serve" in first and not TOOLCHAIN.search(first)
    for part in ("![", "## First request", "## With your SDK", "## With a real provider", "## What next", "LICENSE"):
        assert part in readme


@pytest.mark.parametrize("folder", PAGES)
def test_there_is_a_page_for_each(folder):
    missing = [name for name in PAGES[folder].split() if not (ROOT / "docs" / folder / f"{name}.md").is_file()]
    assert missing == []


@pytest.mark.parametrize("folder", [folder for folder in PAGES if folder != "."])
def test_no_page_is_left_out_of_the_list(folder):
    found = {path.stem for path in (ROOT / "docs" / folder).glob("*.md")} - {"index"}
    assert found == set(PAGES[folder].split())


def test_the_files_of_a_project_that_takes_contributions_are_there():
    for name in (
        "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", ".github/PULL_REQUEST_TEMPLATE.md",
        ".github/ISSUE_TEMPLATE/bug.md", ".github/ISSUE_TEMPLATE/feature.md",
    ):
        assert (ROOT / name).read_text().strip(), name
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"## {part}" in contributing for part in ("Commands", "Layout", "Conventions"))


def test_contact_links_are_absolute():
    config = (ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text()
    assert [url for url in re.findall(r"^\s*-?\s*url:\s*(\S+)", config, re.MULTILINE) if not url.startswith("https://")] == []


def documents():
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in found}


def unreadable(text):
    """What is wrong with the blocks of JSON and TOML of a document, each with the line of its fence."""
    problems = []
    for block in FENCED.finditer(text):
        parse = PARSERS.get((block[1].split() or [""])[0])
        try:
            if parse:
                parse(block[2])
        except ValueError as error:
            problems.append(f"line {text.count(chr(10), 0, block.start()) + 1}: {error}")
    return problems


def test_blocks_of_json_and_toml_parse():
    assert {name: problems for name, text in documents().items() if (problems := unreadable(text))} == {}


def test_a_block_that_does_not_parse_is_found():
    text = "```json\n{\"a\": 1}\n```\n\n  ```json\n  {\"a\": …}\n  ```\n```toml\na = b\n```\n```text\n{\n```\n"
    assert [problem.split(":")[0] for problem in unreadable(text)] == ["line 5", "line 8"]


def test_no_further_blocks_are_left_out_of_the_run():
    kinds = {name: [block[1].split() for block in FENCED.finditer(text)] for name, text in documents().items()}
    found = {name: sum("no-run" in words for words in blocks) for name, blocks in kinds.items()}
    assert {name: count for name, count in found.items() if count} == NOT_RUN
