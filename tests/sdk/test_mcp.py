"""MCP through the gateway with clients and servers of others: the packages `mcp` and `fastmcp`, the reference server
`server-everything`, and the conformance suite of the protocol."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fastmcp import Client as FastClient
from fastmcp.client.transports import StreamableHttpTransport
from key_proxy import KeyProxy
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CreateMessageResult, ElicitResult, TextContent
from node_clients import node_of
from processes import ending_with_us

HERE = Path(__file__).parent
START_LIMIT_S = 30
SUITE_LIMIT_S = 300
REVISIONS = ["2025-11-25", "2026-07-28"]


@contextlib.contextmanager
def program(command, **env):
    process = subprocess.Popen(
        ending_with_us([str(word) for word in command]),
        env=dict(os.environ, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def python_server(kind):
    with program([sys.executable, HERE / "mcp_servers.py", kind]) as process:
        port = int(process.stdout.readline())
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def everything_server(packages):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = packages / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    with program([node_of(packages), script, "streamableHttp"], PORT=str(port)):
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}/mcp"


def wait_for_port(port):
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.fixture(scope="module")
def org(account):
    return account["org"]["id"]


@pytest.fixture(scope="module")
def reference(call, org):
    """The address of the server of the package `mcp`, which is `official` at the gateway."""
    with python_server("mcp") as url:
        call("POST", f"/orgs/{org}/mcp-servers", {"name": "official", "url": url})
        yield url


@pytest.fixture(scope="module")
def servers(call, org, packages, reference):
    with python_server("fastmcp") as fast, everything_server(packages) as everything:
        call("POST", f"/orgs/{org}/mcp-servers", {"name": "fast", "url": fast})
        call("POST", f"/orgs/{org}/mcp-servers", {"name": "everything", "url": everything})
        yield


@pytest.fixture(scope="module")
def connect(gateway, account):
    """Opens a client of the package `mcp`."""

    def client(mode, path="/mcp", **callbacks):
        http = create_mcp_http_client(headers={"X-Gateway-Key": account["api_key"]})
        return Client(streamable_http_client(gateway.url + path, http_client=http), mode=mode, **callbacks)

    return client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_uses_servers_of_every_kind(servers, connect, mode):
    async def run():
        async with connect(mode) as client:
            assert client.protocol_version == ("2026-07-28" if mode == "auto" else "2025-11-25")
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"official__add", "fast__multiply", "everything__echo"} <= tools
            added = await client.call_tool("official__add", {"a": 2, "b": 3})
            assert added.structured_content == {"result": 5}
            product = await client.call_tool("fast__multiply", {"a": 2, "b": 3})
            assert product.content[0].text == "6"
            echo = await client.call_tool("everything__echo", {"message": "hello"})
            assert "hello" in echo.content[0].text
            failed = await client.call_tool("official__test_error_handling", {})
            assert failed.is_error
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            assert {"fast__greet", "official__test_simple_prompt"} <= prompts
            greeting = await client.get_prompt("fast__greet", {"name": "Ada"})
            assert greeting.messages[0].content.text == "Hello Ada"
            read = await client.read_resource("official+test://static-text")
            assert read.contents[0].text.startswith("This is the content")

    asyncio.run(run())


async def answer_question(_context, _params):
    return ElicitResult(action="accept", content={"username": "Ada", "email": "ada@example.com", "name": "Ada"})


async def answer_sampling(_context, _params):
    content = TextContent(type="text", text="from a model")
    return CreateMessageResult(role="assistant", content=content, model="m", stop_reason="endTurn")


def test_questions_of_a_server_reach_an_older_client(reference, connect):
    async def run():
        callbacks = {"elicitation_callback": answer_question, "sampling_callback": answer_sampling}
        async with connect("legacy", **callbacks) as client:
            asked = await client.call_tool("official__test_elicitation", {"message": "Who?"})
            assert "accept" in asked.content[0].text
            sampled = await client.call_tool("official__test_sampling", {"prompt": "hi"})
            assert sampled.content[0].text == "LLM response: from a model"

    asyncio.run(run())


def test_questions_of_a_server_are_results_for_a_modern_client(reference, connect):
    async def run():
        async with connect("auto", elicitation_callback=answer_question) as client:
            greeted = await client.call_tool("official__test_input_required_result_elicitation", {})
            assert greeted.content[0].text == "Hello, Ada!"

    asyncio.run(run())


def test_progress_arrives_while_a_tool_runs(reference, connect):
    async def run():
        seen = []

        async def note(progress, total, _message):
            seen.append((progress, total))

        for mode in ("auto", "legacy"):
            seen.clear()
            async with connect(mode) as client:
                await client.call_tool("official__test_tool_with_progress", {}, progress_callback=note)
            assert seen == [(0, 100), (50, 100), (100, 100)], mode

    asyncio.run(run())


def test_fastmcps_client_lists_calls_and_reads(servers, gateway, account):
    async def run():
        transport = StreamableHttpTransport(gateway.url + "/mcp", headers={"X-Gateway-Key": account["api_key"]})
        async with FastClient(transport) as client:
            tools = {tool.name for tool in await client.list_tools()}
            assert {"official__add", "fast__multiply", "everything__echo"} <= tools
            assert (await client.call_tool("official__add", {"a": 2, "b": 3})).structured_content == {"result": 5}
            assert (await client.call_tool("fast__multiply", {"a": 2, "b": 3})).data == 6
            read = await client.read_resource("fast+notes://today")
            assert read[0].text == "nothing"

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_built_in_server_has_prompts_skills_and_tools(call, connect, mode):
    with contextlib.suppress(Exception):
        call("POST", "/prompts", {"namespace": "sdk", "slug": "hello", "content": "Hello {{name}}."})

    async def run():
        async with connect(mode, "/mcp/gateway") as client:
            prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
            assert [argument.name for argument in prompts["sdk__hello"].arguments] == ["name"]
            got = await client.get_prompt("sdk__hello", {"name": "Ada"})
            assert got.messages[0].content.text == "Hello Ada."
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"find_skill", "load_skill"}
            found = await client.call_tool("find_skill", {"query": "astronomy"})
            assert "No skill" in found.content[0].text

    asyncio.run(run())


def failures(packages, url, revision, directory):
    """The failed checks of the conformance suite: the scenario and the check."""
    script = packages / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    command = [node_of(packages), script, "server", "--url", url, "--requirements", revision, "-o", directory]
    subprocess.run(
        [str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, timeout=SUITE_LIMIT_S
    )
    results = list(directory.glob("*/checks.json"))
    assert len(results) > 20, "the suite did not run"
    failed = {}
    for result in results:
        # The name of the directory is that of the scenario and the time.
        scenario = result.parent.name.split("-20")[0]
        for check in json.loads(result.read_text()):
            if check["status"] == "FAILURE":
                failed[scenario, check["id"]] = check.get("errorMessage")
    return failed


# The scenario calls a tool that the server does not list. The gateway refuses it, as the protocol says (-32602); the
# server of this package answers with a result.
UNLISTED_TOOL = ("server-tasks-dispatch-and-envelope", "tasks-result-type-complete-on-non-task-responses")


@pytest.mark.parametrize("revision", REVISIONS)
def test_nothing_fails_the_conformance_suite_that_the_server_itself_passes(
    packages, gateway, account, reference, revision, tmp_path
):
    alone = failures(packages, reference, revision, tmp_path / "alone")
    with KeyProxy(gateway.url + "/mcp/official", account["api_key"]) as proxy:
        through = failures(packages, proxy.url, revision, tmp_path / "through")
    new = {check: message for check, message in through.items() if check not in alone}
    assert "Unknown tool" in new.pop(UNLISTED_TOOL, "Unknown tool")
    assert not new
