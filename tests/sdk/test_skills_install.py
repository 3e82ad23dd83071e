"""`npx skills add` with an install link: the published program installs what the link has, checks its digests, and refuses
bytes that were changed on the way."""

import contextlib
import http.client
import json
import os
import subprocess
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from node_clients import node_of
from running import Gateway, open_url

INSTALL_LIMIT_S = 60
PLAIN, RICH = "plain-notes", "rich-notes"
GUIDE = b"Read the notes twice.\n"
ARCHIVE = f"/.well-known/agent-skills/{RICH}.tar.gz"


@pytest.fixture(scope="module")
def link():
    """The URL of an install link with a skill of one file and a skill of several."""
    with Gateway(GATEWAY_INSTALL_LINKS="true") as gateway:
        headers = {"X-Gateway-Key": gateway.signup()["api_key"]}

        def call(method, path, body=None):
            url, data = gateway.url + "/api/v1" + path, None
            if body is not None:
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
            with open_url(urllib.request.Request(url, data, headers, method=method)) as answer:
                return json.load(answer)

        rubric = call("GET", "/skills/rubric")
        call("PUT", f"/skills/rubric/{rubric['id']}", {"allowed_verdict_sources": ["internal", "scanner"]})
        for name in (PLAIN, RICH):
            skill = call("POST", "/skills", fields(name))
            if name == RICH:
                call("PUT", f"/skills/{skill['id']}/files/docs/guide.md", GUIDE)
            verdict = {"subject_type": "skill", "subject_id": skill["id"], "source": "scanner", "passed": True}
            call("POST", "/eval-results", verdict)
        yield call("POST", "/skills/install-links", {"name": "agents", "skills": "passed"})["url"]


def fields(name):
    description = f"Summarises {name}. Use when somebody asks for {name}."
    return {"name": name, "description": description, "body": "# Steps\n\nRead them, then write three sentences."}


@contextlib.contextmanager
def changing(url, changed):
    """Serves the link from another address, with one byte more at the end of the path `changed`."""
    target = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            connection = http.client.HTTPConnection(target.hostname, target.port, timeout=20)
            try:
                connection.request("GET", self.path)
                answer = connection.getresponse()
                body = answer.read() + (b"\n" if self.path.endswith(changed) else b"")
            finally:
                connection.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{target.path}"
    finally:
        server.shutdown()
        server.server_close()


def add(packages, url, home):
    """Runs `skills add` for Claude Code in an empty project, and returns the program's result and the project's skills."""
    project = home / "project"
    project.mkdir(parents=True)
    script = packages / "node_modules/skills/bin/cli.mjs"
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "CI": "1"}
    command = [node_of(packages), script, "add", url, "--agent", "claude-code", "--skill", "*", "--copy", "--yes"]
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_LIMIT_S,
    )
    return ended, project / ".claude/skills"


def served(url, path):
    with open_url(urllib.request.Request(url + path)) as answer:
        return answer.read()


def test_skills_are_installed_from_a_link(packages, link, tmp_path):
    ended, installed = add(packages, link, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {folder.name for folder in installed.iterdir()} == {PLAIN, RICH}, ended.stdout
    for name in (PLAIN, RICH):
        text = (installed / name / "SKILL.md").read_bytes()
        assert text == served(link, f"/.well-known/skills/{name}/SKILL.md")
    assert (installed / RICH / "docs/guide.md").read_bytes() == GUIDE


def test_bytes_with_another_digest_are_not_installed(packages, link, tmp_path):
    """The other skill arrives, so the refusal is about the archive and not about the address."""
    with changing(link, ARCHIVE) as url:
        ended, installed = add(packages, url, tmp_path)
        assert served(url, ARCHIVE) != served(link, ARCHIVE)
    names = {folder.name for folder in installed.iterdir()} if installed.exists() else set()
    assert names == {PLAIN}, ended.stdout + ended.stderr
