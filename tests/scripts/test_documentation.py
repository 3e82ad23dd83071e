"""What the documentation must have: a README that a newcomer can follow without a compiler, and a page for each thing that
people look for."""

import re

import pytest
from conftest import ROOT

MAX_LINES = 120
TOOLCHAIN = re.compile(r"\b(cargo|rustc|make|gcc|docker)\b")
BLOCK = re.compile(r"^```sh.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    "clients": "curl python typescript langchain vercel-ai-sdk claude-code cursor open-webui",
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
