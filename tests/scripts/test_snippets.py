"""scripts/docs-snippets: which blocks run, in which session, and how a failure is reported."""

import shutil

import pytest
from conftest import ROOT, load, run

snippets = load("docs-snippets")

SIGN_UP = """# Title

```sh
export KEY=$(curl -sf http://127.0.0.1:8080/api/v1/signup -d '{"org_slug": "docs"}' \\
  | python3 -c 'import json, sys; print(json.load(sys.stdin)["api_key"])')
```
"""


def document(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def test_only_blocks_in_known_languages_are_taken_and_no_run_is_honoured():
    text = "```sh\na\n```\n```json\n{}\n```\n```python\nb\n```\n```sh no-run\nmake run\n```\n~~~sh\nc\n~~~\n"

    found = [(block.line, block.suffix, block.text, block.run) for block in snippets.blocks_of(text)]

    assert found == [
        (2, "sh", "a\n", True),
        (8, "py", "b\n", True),
        (11, "sh", "make run\n", False),
        (14, "sh", "c\n", True),
    ]


def test_a_fence_inside_a_longer_fence_is_text():
    assert snippets.blocks_of("````md\n```sh\nfalse\n```\n````\n") == []


def test_an_indented_block_loses_its_indentation():
    assert snippets.blocks_of("  ```python\n  if x:\n    y\n  ```\n")[0].text == "if x:\n  y\n"


def test_a_block_that_is_never_closed_is_an_error():
    with pytest.raises(snippets.Unreadable, match="line 2"):
        snippets.blocks_of("text\n```sh\ntrue\n")


def test_blocks_share_one_session_and_reach_the_gateway(tmp_path):
    python = (
        "```python\nimport os, openai\n"
        'headers = {"X-Gateway-Provider": "sandbox", "X-Gateway-Key": os.environ["KEY"]}\n'
        'client = openai.OpenAI(base_url="http://localhost:8080/v1", api_key=os.environ["KEY"], default_headers=headers)\n'
        "assert client.models.list().data\n```\n"
    )
    done = run(
        "scripts/docs-snippets", document(tmp_path, SIGN_UP + python + "```sh no-run\nmake run\n```\n")
    )

    assert done.returncode == 0, done.stdout
    assert "snippets: 2 passed, 0 failed, 1 skipped" in done.stdout


def test_a_failing_block_is_named_by_file_and_line_with_its_output(tmp_path):
    text = SIGN_UP + "\n```sh\necho the river is dry\ncat no-such-file\necho never\n```\n\n```sh\ntrue\n```\n"
    done = run("scripts/docs-snippets", document(tmp_path, text))

    assert done.returncode == 1
    assert "page.md:9: this block failed (status 1)" in done.stdout
    assert "the river is dry" in done.stdout
    assert "no-such-file: No such file" in done.stdout
    assert "snippets: 1 passed, 1 failed, 0 skipped" in done.stdout


@pytest.mark.parametrize("code", ["echo $NOT_SET", "if then", "exit 0"])
def test_unset_variables_bad_syntax_and_early_exits_fail(tmp_path, code):
    done = run("scripts/docs-snippets", document(tmp_path, f"```sh\n{code}\n```\n"))

    assert done.returncode == 1
    assert "page.md:2: this block failed" in done.stdout


def test_a_document_without_blocks_is_not_a_success(tmp_path):
    assert run("scripts/docs-snippets", document(tmp_path, "nothing here\n")).returncode == 1


def test_blocks_know_their_document_and_those_for_node_need_it(tmp_path, monkeypatch):
    path = document(tmp_path, "```js\n1\n```\n```sh\ntrue\n```\n```ts\n2\n```\n")
    monkeypatch.setattr(snippets.shutil, "which", lambda name: "/usr/bin/node")

    found = [(block.suffix, block.path) for block in snippets.runnable(path)]
    assert found == [("mjs", path), ("sh", path), ("ts", path)]

    monkeypatch.setattr(snippets.shutil, "which", lambda name: None)
    assert [block.suffix for block in snippets.runnable(path)] == ["sh"]


@pytest.mark.skipif(not shutil.which("npm"), reason="Node.js is not installed")
def test_typescript_runs_with_its_packages_and_errors_name_the_line_of_the_document(tmp_path):
    good = "```ts\nimport OpenAI from 'openai'\n\nconst made: number = 1\nif (!OpenAI || made !== 1) throw 0\n```\n"
    done = run("scripts/docs-snippets", document(tmp_path, good))
    assert done.returncode == 0, done.stdout

    done = run("scripts/docs-snippets", document(tmp_path, good + "\n```ts\nthrow new Error('dry river')\n```\n"))
    assert done.returncode == 1
    assert "dry river" in done.stdout and "page.md.1.ts:9" in done.stdout
    assert "snippets: 1 passed, 1 failed, 0 skipped" in done.stdout

    done = run("scripts/docs-snippets", document(tmp_path, "```ts\nconst = 1\n```\n"))
    assert done.returncode == 1 and "page.md.0.ts(2," in done.stdout


def test_pages_use_the_account_of_the_readme():
    # A second person joins the organization there.
    allowed = {"access.md"}
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in allowed]
    for path in pages:
        for block in snippets.blocks_of(path.read_text()):
            assert not (block.run and "api/v1/signup" in block.text), f"{path}:{block.line} makes another account"
