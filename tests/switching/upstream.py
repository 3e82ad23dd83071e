"""One upstream for both gateways. It speaks the formats of OpenAI, Anthropic, Gemini and Cohere under any path.

The first word of a model's name decides how it is answered: `context` (the input is too long), `filter` (the content
is refused), `flaky2` (two failures, then an answer), a status such as `500`; any other word is answered well. What was
asked is kept under the marker in the request's text, so that calls of one case and one gateway stay together.
"""

import collections
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MARKER = re.compile(rb"\[\[([^\]]+)\]\]")
# The headers of a deployment in the configuration.
EXTRA = ("x-team",)
CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
# Where the text of the caller stands; its translation is the subject of other tests.
CONTENT = ("messages", "contents", "input", "prompt", "system", "system_instruction", "systemInstruction")
# What LiteLLM adds to bodies without a change of their meaning.
NOTHING = ("usage", "max_retries")
TEXT = "Served by "


class Call:
    """A request as the upstream saw it."""

    def __init__(self, method, path, headers, raw):
        self.method, self.path = method, path
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = json.loads(raw) if raw else {}
        found = re.search(r"/models/([^:]+):|/deployments/([^/]+)/", path)
        self.model = self.body.get("model") or (found and (found.group(1) or found.group(2))) or ""

    @property
    def parameters(self):
        left_out = (*CONTENT, *NOTHING, "model")
        kept = {name: value for name, value in self.body.items() if name not in left_out}
        return {name: value for name, value in kept.items() if (name, value) != ("stream", False)}

    def __str__(self):
        headers = {name: self.headers[name] for name in (*CREDENTIALS, *EXTRA) if name in self.headers}
        return f"{self.path} {self.model} {headers} {json.dumps(self.parameters, sort_keys=True)}"


class Upstream:
    """Serves on entering. `url` is its address."""

    def __enter__(self):
        self.lock = threading.Lock()
        self.seen = collections.defaultdict(list)
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                upstream.answer(self, Call("POST", self.path, self.headers, raw), raw)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def take(self, marker):
        """The calls with this marker, which are forgotten."""
        with self.lock:
            return self.seen.pop(marker, [])

    def answer(self, handler, call, raw):
        marker = found.group(1).decode() if (found := MARKER.search(raw)) else ""
        with self.lock:
            calls = self.seen[marker]
            calls.append(call)
            before = sum(other.model == call.model for other in calls) - 1
        behaviour = call.model.rpartition("/")[2].partition("-")[0]
        if behaviour.startswith("flaky"):
            behaviour = "500" if before < int(behaviour.removeprefix("flaky")) else "ok"
        if not behaviour.isdigit() and behaviour not in ("context", "filter"):
            return success(handler, call)
        status, body = failure(call, behaviour)
        return send(handler, status, "application/json", json.dumps(body).encode())


def shape_of(path):
    path = path.partition("?")[0]
    for end in ("messages", "embeddings", "responses", "chat/completions", "completions"):
        if path.endswith("/" + end):
            return end
    return "gemini" if ":" in path.rpartition("/")[2] else "cohere" if path.endswith("/chat") else "unknown"


def failure(call, behaviour):
    shape = shape_of(call.path)
    if behaviour == "context":
        text, code = "This model's maximum context length is 8192 tokens.", "context_length_exceeded"
        if shape == "messages":
            text = "prompt is too long: 210000 tokens > 200000 maximum"
        status = 400
    elif behaviour == "filter":
        text = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
        status, code = 400, "invalid_prompt"
        if shape == "messages":
            text = "Output blocked by content filtering policy"
    else:
        status = int(behaviour)
        text, code = f"status {status} for {call.model}", "failed"
    kind = "invalid_request_error" if status < 500 else "server_error"
    if shape == "messages":
        return status, {"type": "error", "error": {"type": kind, "message": text}}
    return status, {"error": {"message": text, "type": kind, "param": None, "code": code}}


def success(handler, call):
    shape, body = shape_of(call.path), call.body
    said = TEXT + call.model
    is_stream = body.get("stream") or "streamGenerateContent" in call.path
    answers = {
        "chat/completions": (chat, chat_events),
        "messages": (message, message_events),
        "embeddings": (embeddings, None),
        "completions": (completion, None),
        "responses": (response, None),
        "gemini": (gemini, None),
        "cohere": (cohere, None),
    }
    if shape not in answers:
        return send(handler, 404, "application/json", json.dumps({"error": {"message": call.path}}).encode())
    whole, events = answers[shape]
    if is_stream and events:
        return send(handler, 200, "text/event-stream", "".join(events(call.model, said)).encode())
    return send(handler, 200, "application/json", json.dumps(whole(call.model, said)).encode())


def send(handler, status, kind, body):
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def chat(model, said):
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1741570283, "model": model}
    head["service_tier"] = "default"
    return head | {"choices": [choice], "usage": usage}


def chat_events(model, said):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1741570283, "model": model}
    for delta, end in (({"role": "assistant", "content": ""}, None), ({"content": said}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        yield f"data: {json.dumps(head | {'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"


def message(model, said):
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    whole |= {"content": [{"type": "text", "text": said}], "stop_reason": "end_turn"}
    return whole | {"usage": {"input_tokens": 9, "output_tokens": 3}}


def message_events(model, said):
    start = message(model, said) | {"content": [], "stop_reason": None}
    block = {"type": "text", "text": ""}
    for event in (
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": said}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def completion(model, said):
    choice = {"index": 0, "text": said, "finish_reason": "stop", "logprobs": None}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1741570283, "model": model}
    return head | {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}


def embeddings(model, _said):
    data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
    return {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": 9, "total_tokens": 9}}


def response(model, said):
    part = {"type": "output_text", "text": said, "annotations": []}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    whole = {"id": "resp_1", "object": "response", "created_at": 1741476542, "model": model, "output": [item]}
    whole |= {"status": "completed", "error": None, "incomplete_details": None, "instructions": None, "tools": []}
    whole |= {"parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "metadata": {}}
    return whole | {"usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}}


def gemini(model, said):
    candidate = {"content": {"role": "model", "parts": [{"text": said}]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


def cohere(_model, said):
    usage = {"billed_units": {"input_tokens": 9, "output_tokens": 3}, "tokens": {"input_tokens": 9, "output_tokens": 3}}
    content = {"role": "assistant", "content": [{"type": "text", "text": said}]}
    return {"id": "cohere-1", "finish_reason": "COMPLETE", "message": content, "usage": usage}
