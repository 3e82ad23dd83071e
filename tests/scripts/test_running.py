"""The gateway process of the tests, the schemathesis run over it, and the services around it."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import running
from conftest import load, run


def test_the_address_is_read_from_json_and_from_plain_lines():
    assert (
        running.url_in('{"level":"INFO","fields":{"url":"http://127.0.0.1:81/"}}\n') == "http://127.0.0.1:81"
    )
    assert running.url_in('{"level":"INFO"}\n{"url":"http://127.0.0.1:82"}\n') == "http://127.0.0.1:82"
    assert running.url_in("Gateway is at http://127.0.0.1:83, data in ./data\n") == "http://127.0.0.1:83"
    assert running.url_in("starting\n") is None


def test_no_setting_or_key_of_the_caller_reaches_the_gateway(standin):
    standin.setenv("OPENAI_API_KEY", "secret")
    standin.setenv("GATEWAY_DATABASE_URL", "postgres://somewhere")
    with running.Gateway() as gateway:
        environment = gateway.environment()

    assert "OPENAI_API_KEY" not in environment
    assert "GATEWAY_DATABASE_URL" not in environment
    assert environment["GATEWAY_PROVIDER_AZURE_OPENAI_BASE_URL"] == running.NOWHERE


def test_a_gateway_that_does_not_start_says_why(standin):
    standin.setenv("STANDIN_FLAW", "no_start")
    with pytest.raises(running.GatewayFailed, match="status 3:\nerror: the data directory cannot be written"):
        running.Gateway().__enter__()


def test_a_gateway_that_does_not_end_cleanly_is_a_failure(standin):
    standin.setenv("STANDIN_FLAW", "unclean_exit")
    with pytest.raises(running.GatewayFailed, match="status 7, not 0"):
        with running.Gateway():
            pass


def test_schemathesis_fails_on_a_server_error_and_on_an_answer_that_breaks_its_schema():
    with ThreadPoolExecutor() as pool:
        flaws = ("server_error", "wrong_schema")
        broken, wrong = pool.map(lambda flaw: run("scripts/schemathesis", STANDIN_FLAW=flaw), flaws)

    assert broken.returncode == 1
    assert "Server error" in broken.stdout
    assert wrong.returncode == 1
    assert "Response violates schema" in wrong.stdout
    assert "Server error" not in wrong.stdout


def test_schemathesis_refuses_a_document_that_is_not_valid_openapi():
    done = run("scripts/schemathesis", STANDIN_FLAW="invalid_document")

    assert done.returncode == 1
    assert "the OpenAPI document is not valid: None is not of type 'string'" in done.stdout


def test_generated_urls_are_turned_to_loopback():
    import schemathesis_hooks as hooks

    body = {"url": "https://example.com/a?b", "list": ["HTTP://[::2]:80", 1], "raw": b"ws://h.example"}

    assert hooks.on_loopback(body) == {
        "url": "https://127.0.0.1:9/a?b",
        "list": ["HTTP://127.0.0.1:9", 1],
        "raw": b"ws://127.0.0.1:9",
    }


def test_services_that_are_named_are_used_and_the_commands_status_is_kept():
    named = {"TEST_POSTGRES_URL": "postgres://here", "TEST_REDIS_URL": "redis://there"}
    done = run(
        "scripts/services",
        "run",
        "--",
        "sh",
        "-c",
        "echo $TEST_POSTGRES_URL $TEST_REDIS_URL; exit 5",
        **named,
    )

    assert done.returncode == 5
    assert "postgres://here redis://there" in done.stdout


def test_a_wrapper_without_a_server_beside_it_is_no_postgres(tmp_path, monkeypatch):
    wrapper = tmp_path / "initdb"
    wrapper.write_text("#!/bin/sh\necho initdb 99.1\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    assert str(tmp_path) not in load("services").postgres_directories()


def test_the_console_is_left_out_where_there_is_no_node_or_an_old_one(tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    without = run("scripts/console", "build", PATH=str(tmp_path))
    for name, version in (("node", "v18.20.1"), ("npm", "10.0.0")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    old = run("scripts/console", "build", PATH=str(tmp_path))

    assert (without.returncode, old.returncode) == (0, 0)
    assert "Node.js is missing: the web console and the documentation site are left out" in without.stdout
    assert "Node.js v18.20.1 is older than 20.19: the web console and the documentation site are left out" in old.stdout
