"""MCP servers of others for the tests, as programs: `mcp_servers.py mcp|fastmcp` prints its port and serves until it is
ended. The server of the package `mcp` has what the conformance suite calls."""

import asyncio
import base64
import json
import socket
import sys

import uvicorn

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"
).decode()


def official():
    """A server with the package `mcp`, of both eras."""
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.prompts.base import UserMessage
    from mcp.types import (
        AudioContent,
        Completion,
        ElicitRequest,
        ElicitRequestFormParams,
        EmbeddedResource,
        ImageContent,
        InputRequiredResult,
        SamplingMessage,
        TextContent,
        TextResourceContents,
    )
    from pydantic import BaseModel, Field

    server = MCPServer("reference", instructions="Call what you like.")

    def embedded(uri, text):
        return EmbeddedResource(
            type="resource", resource=TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        )

    image = ImageContent(type="image", data=PIXEL, mime_type="image/png")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def test_simple_text() -> str:
        """Returns a text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> ImageContent:
        """Returns an image."""
        return image

    @server.tool()
    def test_audio_content() -> AudioContent:
        """Returns a sound."""
        return AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")

    @server.tool()
    def test_embedded_resource() -> EmbeddedResource:
        """Returns a resource."""
        return embedded("test://embedded-resource", "This is an embedded resource content.")

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        """Returns a text, an image and a resource."""
        text = TextContent(type="text", text="Multiple content types test:")
        return [text, image, embedded("test://mixed-content-resource", '{"test": "data"}')]

    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> str:
        """Writes log messages while it runs."""
        for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(message)
            await asyncio.sleep(0.05)
        return "logged"

    @server.tool()
    async def test_logging_tool(ctx: Context) -> str:
        """Writes a log message."""
        await ctx.info("a message")
        return "logged"

    @server.tool()
    def greet(name: str) -> str:
        """Greets somebody."""
        return f"Hello, {name}!"

    @server.tool()
    async def slow_compute(seconds: float = 0) -> str:
        """Takes its time."""
        await asyncio.sleep(min(seconds, 2))
        return "computed"

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Reports its progress."""
        for step in (0, 50, 100):
            await ctx.report_progress(step, 100, f"step {step}")
            await asyncio.sleep(0.05)
        return "done"

    @server.tool()
    def test_error_handling() -> str:
        """Fails."""
        raise RuntimeError("This tool intentionally returns an error for testing")

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Asks the client's model."""
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        result = await ctx.session.create_message(
            messages=[message], max_tokens=100, related_request_id=ctx.request_id
        )
        return f"LLM response: {result.content.text}"

    class Reply(BaseModel):
        username: str = Field(description="The name of the user")
        email: str = Field(description="The address of the user")

    @server.tool()
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Asks the user."""
        result = await ctx.elicit(message=message, schema=Reply)
        return f"User response: {result.action}"

    class Defaults(BaseModel):
        name: str = "John Doe"
        age: int = 30
        score: float = 95.5
        status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
        verified: bool = True

    @server.tool()
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        """Asks the user, with default values."""
        result = await ctx.elicit(message="Who are you?", schema=Defaults)
        return f"Elicitation completed: action={result.action}"

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    def question(name, answer, kind, state=None):
        schema = {"type": "object", "properties": {answer: {"type": kind}}, "required": [answer]}
        asked = ElicitRequest(params=ElicitRequestFormParams(message=f"Your {answer}?", requested_schema=schema))
        return InputRequiredResult(input_requests={name: asked}, request_state=state)

    @server.tool()
    async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks for a name."""
        if not ctx.input_responses:
            return question("user_name", "name", "string")
        return f"Hello, {ctx.input_responses['user_name'].content['name']}!"

    @server.tool()
    async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
        """Asks for a name, on a stream."""
        await ctx.report_progress(1, 2)
        return "answered" if ctx.input_responses else question("user_name", "name", "string")

    def with_state(name):
        async def confirm(ctx: Context) -> str | InputRequiredResult:
            """Asks for a confirmation, and keeps a state."""
            if ctx.request_state is None:
                return question("confirm", "ok", "boolean", "asked")
            return f"state-ok: {ctx.request_state}"

        server.add_tool(confirm, name=name)

    with_state("test_input_required_result_request_state")
    with_state("test_input_required_result_tampered_state")

    @server.tool()
    async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
        """Asks twice."""
        if ctx.request_state is None:
            return question("step1", "name", "string", "one")
        if ctx.request_state == "one":
            return question("step2", "color", "string", "two")
        return "done"

    user = UserMessage

    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """A prompt."""
        return [user(TextContent(type="text", text="This is a simple prompt for testing."))]

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """A prompt with two arguments."""
        text = f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"
        return [user(TextContent(type="text", text=text))]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
        """A prompt with a resource."""
        content = embedded(resourceUri, "Embedded resource content for testing.")
        return [user(content), user(TextContent(type="text", text="Process it."))]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with an image."""
        return [user(image), user(TextContent(type="text", text="Look at it."))]

    @server.completion()
    async def complete(_reference, _argument, _context) -> Completion:
        return Completion(values=["paris"], total=1, has_more=False)

    return server.streamable_http_app()


def fast():
    """A server with the package `fastmcp`."""
    from fastmcp import FastMCP

    server = FastMCP("fast")

    @server.tool
    def multiply(a: int, b: int) -> int:
        """Multiplies two numbers."""
        return a * b

    @server.prompt
    def greet(name: str) -> str:
        """Greets somebody."""
        return f"Hello {name}"

    @server.resource("notes://today")
    def notes() -> str:
        return "nothing"

    return server.http_app(path="/mcp")


def main(kind):
    app = {"mcp": official, "fastmcp": fast}[kind]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
