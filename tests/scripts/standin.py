#!/usr/bin/env python3
"""A small stand-in for the gateway, used to test the scripts.

It keeps what the scripts rely on: the start-up line, signup, the OpenAPI document, the sandbox.
STANDIN_FLAW makes it break one rule: `server_error`, `wrong_schema`, `invalid_document`, `no_auth`,
`unclean_exit`, `no_start`.
"""

import json
import os
import re
import signal
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAW = os.environ.get("STANDIN_FLAW", "")
TOKENS, TEAMS = {}, {}

ERROR = {
    "description": "error",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            }
        }
    },
}


def answer_of(schema):
    return {"description": "fine", "content": {"application/json": {"schema": schema}}}


def errors(*codes):
    return {str(code): ERROR for code in codes}


def document():
    team = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {"id": {"type": "string", "format": "uuid"}, "name": {"type": "string"}},
    }
    text = {"type": "string", "minLength": 1, "maxLength": 40}
    new_team = {"type": "object", "required": ["name"], "properties": {"name": text}}
    body = {"required": True, "content": {"application/json": {"schema": new_team}}}

    def path_id(name):
        schema = {"type": "string", "format": "uuid"}
        if FLAW == "invalid_document":
            schema["default"] = None
        return {"name": name, "in": "path", "required": True, "schema": schema}

    return {
        "openapi": "3.1.0",
        "info": {"title": "stand-in", "version": "1"},
        "servers": [{"url": "/api/v1"}],
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{"bearer": []}],
        "paths": {
            "/auth/logout": {"post": {"responses": {"200": answer_of({"type": "object"}), **errors(401)}}},
            "/orgs/{orgId}": {
                "parameters": [path_id("orgId")],
                "delete": {"responses": {"200": answer_of({"type": "object"}), **errors(400, 401, 404)}},
            },
            "/orgs/{orgId}/teams": {
                "parameters": [path_id("orgId")],
                "get": {
                    "responses": {"200": answer_of({"type": "array", "items": team}), **errors(400, 401, 404)}
                },
                "post": {"requestBody": body, "responses": {"201": answer_of(team), **errors(400, 401, 404)}},
            },
        },
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without this the last bytes of a response wait for an acknowledgement of the first.
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *arguments):
        print(
            json.dumps({"message": "request", "line": arguments[1], "status": str(arguments[2])}),
            file=sys.stderr,
            flush=True,
        )

    def reply(self, status, value, headers=()):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status, code, headers=()):
        self.reply(status, {"code": code, "message": code.replace("_", " "), "error": code}, headers)

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        path = self.path.split("?")[0]
        if path == "/healthz":
            return self.reply(200, {"status": "ok"})
        if path == "/api/v1/signup":
            organization = str(uuid.uuid4())
            token, key = uuid.uuid4().hex, "sk-gateway-" + uuid.uuid4().hex * 2
            TOKENS[token] = TOKENS[key] = organization
            slug = json.loads(raw)["org_slug"]
            return self.reply(
                201, {"org": {"id": organization, "slug": slug}, "token": token, "api_key": key}
            )
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.headers.get("X-Gateway-Provider") == "sandbox":
            return self.sandbox(path, raw, TOKENS.get(self.headers.get("X-Gateway-Key")))
        if path.startswith("/v1/"):
            return self.fail(400, "missing_x-gateway-provider")
        organization = TOKENS.get(token)
        if organization is None and FLAW != "no_auth":
            return self.fail(401, "unauthorized")
        if path == "/openapi.yaml":
            return self.reply(200, document())
        return self.managed(path.removeprefix("/api/v1").split("/")[1:], raw, token, organization)

    def managed(self, parts, raw, token, organization):
        allowed = {1: [], 2: ["DELETE"], 3: ["GET", "POST"]}.get(len(parts), [])
        allowed = ["POST"] if parts == ["auth", "logout"] else allowed
        if self.command not in allowed:
            return self.fail(405, "method_not_allowed", [("Allow", ", ".join(allowed))])
        if parts == ["auth", "logout"]:
            TOKENS.pop(token, None)
            return self.reply(200, {})
        try:
            uuid.UUID(parts[1])
        except ValueError:
            return self.fail(400, "bad_request")
        if FLAW != "no_auth" and parts[1] != organization:
            return self.fail(404, "not_found")
        teams = TEAMS.setdefault(parts[1], [])
        if self.command == "DELETE":
            TOKENS.pop(token, None)
            return self.reply(200, {"deleted": True})
        if self.command == "GET":
            return self.reply(200, teams)
        return self.new_team(raw, teams)

    def new_team(self, raw, teams):
        try:
            name = json.loads(raw)["name"]
            assert isinstance(name, str) and 1 <= len(name) <= 40
        except (ValueError, KeyError, TypeError, AssertionError):
            return self.fail(400, "bad_request")
        if FLAW == "server_error" and len(name) > 20:
            return self.fail(500, "internal")
        if FLAW == "wrong_schema":
            return self.reply(201, {"id": str(uuid.uuid4()), "title": name})
        teams.append({"id": str(uuid.uuid4()), "name": name})
        return self.reply(201, teams[-1])

    def sandbox(self, path, raw, organization):
        if organization is None:
            return self.fail(401, "unauthorized")
        time.sleep(int(self.headers.get("X-Sandbox-Delay-Ms") or 0) / 1000)
        if status := self.headers.get("X-Sandbox-Status"):
            if int(status) >= 500:
                body = {"code": "provider_error", "provider": "sandbox", "upstream_status": int(status)}
                return self.reply(502, body)
            error = {"message": "rehearsed", "type": "sandbox", "code": "rehearsed"}
            return self.reply(int(status), {"error": error})
        if path == "/v1/models":
            return self.reply(
                200, {"object": "list", "data": [{"id": "sandbox-1", "object": "model", "owned_by": "s"}]}
            )
        request = json.loads(raw)
        if path == "/v1/embeddings":
            inputs = request["input"] if isinstance(request["input"], list) else [request["input"]]
            data = [
                {"object": "embedding", "index": i, "embedding": [float(len(text)), 0.5]}
                for i, text in enumerate(inputs)
            ]
            usage = {"prompt_tokens": len(inputs), "total_tokens": len(inputs)}
            return self.reply(
                200, {"object": "list", "model": request["model"], "data": data, "usage": usage}
            )
        text = self.headers.get("X-Sandbox-Reply") or "You said: " + str(request["messages"][-1]["content"])
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        common = {"id": "c1", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self.reply(
                200, common | whole, [("X-Gateway-Log-Id", "1"), ("X-Gateway-Provider", "sandbox")]
            )
        return self.stream(request, text, common | {"object": "chat.completion.chunk"}, usage)

    def stream(self, request, text, common, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for word in re.findall(r"\s*\S+", text):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            self.event(common | {"choices": [choice]})
        self.event(common | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self.event(common | {"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_HEAD = do_QUERY = handle_any


def main():
    if FLAW == "no_start":
        print("error: the data directory cannot be written", file=sys.stderr)
        return 3
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print(json.dumps({"level": "INFO", "message": "serving", "url": url}), file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.05)
    return 7 if FLAW == "unclean_exit" else 0


if __name__ == "__main__":
    sys.exit(main())
