"""Links between the Markdown files of the repository: every file and every heading that one names exists.

Links of the built site are checked while it is built (site/scripts/finish.mjs).
"""

import re

import pytest
from conftest import ROOT

CODE = re.compile(r"^(```|~~~).*?^\1[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def documents():
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return sorted(path for path in found if path.is_file())


def anchors(text):
    """The anchors of the headings, as forges make them."""
    seen, found = {}, set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain))
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def problems_of(path):
    problems = []
    for link in LINK.findall(CODE.sub("", path.read_text())):
        if re.match(r"[a-z]+:|/", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            problems.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
            problems.append(f"{link}: there is no such heading")
    return problems


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert problems_of(path) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `thing`, two\n[a](#one-thing-two) [b](#three) [c](missing.md) [d](https://example.com)\n"
        "```sh\n# no heading\n[e](nowhere.md)\n```\n`[f](nowhere.md)`\n[g](page.md#no-heading)\n"
    )

    assert problems_of(page) == [
        "#three: there is no such heading",
        "missing.md: there is no such file",
        "page.md#no-heading: there is no such heading",
    ]
