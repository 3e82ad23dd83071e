"""Fake providers on loopback that respond in the published formats of OpenAI (chat and responses), Anthropic, Gemini,
Cohere and Bedrock.

What they say depends on the request alone: two parallel calls when there are tools, a remark on the results when those
came back, a cut answer when few tokens are allowed, an error when the question asks for one. A request that the real
provider would refuse is refused here too, so that a wrong translation cannot pass.
"""

import binascii
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = ["Grüße ", "aus ", "Zürich"]
RESULT = ["Mild in ", "both."]
CITIES = ["Paris", "Rome"]
INPUT, OUTPUT = 25, 12


class Refused(Exception):
    """The provider rejects this request."""


def need(condition, why):
    if not condition:
        raise Refused(why)


class Said:
    """A response before it is encoded in a format."""

    def __init__(self, has_tools, has_results, limit):
        self.calls = CITIES if has_tools and not has_results else []
        self.pieces = [] if self.calls else RESULT if has_results else TEXT
        self.cut = bool(limit and limit < 20 and not self.calls)
        if self.cut:
            self.pieces = TEXT[:1]

    @property
    def text(self):
        return "".join(self.pieces)

    def end(self, stop, length, tools):
        return tools if self.calls else length if self.cut else stop


def arguments(city):
    return json.dumps({"city": city})


def halves(city):
    text = arguments(city)
    return text[:5], text[5:]


# ---- OpenAI, chat completions


def chat_says(body, headers):
    need(headers["authorization"] == "Bearer sk-openai", "authorization")
    need(body["messages"] and body["messages"][-1]["role"] in ("user", "tool"), "messages")
    asked = {call["id"] for message in body["messages"] for call in message.get("tool_calls") or []}
    results = [message for message in body["messages"] if message["role"] == "tool"]
    need(all(result["tool_call_id"] in asked for result in results), "a result without its call")
    need(len(asked) == len(results), "a call without its result")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return Said(body.get("tools"), results, limit)


def chat_usage():
    details = {"cached_tokens": 10, "audio_tokens": 0}
    counts = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    return counts | {"prompt_tokens_details": details}


def chat_calls(said):
    for index, city in enumerate(said.calls):
        function = {"name": "get_weather", "arguments": arguments(city)}
        yield {"id": f"call_{index}", "type": "function", "function": function}


def chat_plain(body, said):
    message = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.calls:
        message["tool_calls"] = list(chat_calls(said))
    choice = {"index": 0, "message": message, "logprobs": None}
    choice["finish_reason"] = said.end("stop", "length", "tool_calls")
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1741570283, "model": body["model"]}
    return head | {"choices": [choice], "usage": chat_usage()}


def chat_stream(body, said):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1741570283}
    head["model"] = body["model"]

    def chunk(delta, end=None):
        return None, head | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}

    yield chunk({"role": "assistant", "content": "" if said.pieces else None})
    for piece in said.pieces:
        yield chunk({"content": piece})
    for index, call in enumerate(chat_calls(said)):
        function = call["function"] | {"arguments": ""}
        yield chunk({"tool_calls": [{"index": index} | call | {"function": function}]})
        for half in halves(said.calls[index]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield chunk({}, said.end("stop", "length", "tool_calls"))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield None, head | {"choices": [], "usage": chat_usage()}
    yield None, "[DONE]"


# ---- OpenAI, responses


def responses_says(body, headers):
    need(headers["authorization"] == "Bearer sk-openai", "authorization")
    need("messages" not in body and body["input"], "input")
    items = body["input"] if isinstance(body["input"], list) else []
    asked = {item["call_id"] for item in items if item.get("type") == "function_call"}
    results = [item for item in items if item.get("type") == "function_call_output"]
    need({item["call_id"] for item in results} == asked, "calls and results")
    need(all("name" in tool for tool in body.get("tools", [])), "tools are flat here")
    return Said(body.get("tools"), results, body.get("max_output_tokens"))


def responses_items(said):
    if said.pieces:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        status = "incomplete" if said.cut else "completed"
        yield {"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": [part]}
    for index, city in enumerate(said.calls):
        call = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}"}
        yield call | {"name": "get_weather", "arguments": arguments(city), "status": "completed"}


def response_of(body, said, is_over):
    counts = {"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": OUTPUT}
    counts |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": INPUT + OUTPUT}
    whole = {"id": "resp_1", "object": "response", "created_at": 1741476542, "model": body["model"]}
    whole |= {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "output": []}
    whole |= {"parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto", "tools": []}
    if not is_over:
        return whole | {"status": "in_progress", "usage": None}
    if said.cut:
        whole["incomplete_details"] = {"reason": "max_output_tokens"}
    status = "incomplete" if said.cut else "completed"
    return whole | {"status": status, "usage": counts, "output": list(responses_items(said))}


def responses_plain(body, said):
    return response_of(body, said, True)


def responses_stream(body, said):
    number = iter(range(1000))

    def event(kind, **fields):
        return kind, {"type": kind, "sequence_number": next(number)} | fields

    yield event("response.created", response=response_of(body, said, False))
    yield event("response.in_progress", response=response_of(body, said, False))
    for place, item in enumerate(responses_items(said)):
        at = {"item_id": item["id"], "output_index": place}
        if item["type"] == "message":
            empty = item | {"status": "in_progress", "content": []}
            yield event("response.output_item.added", output_index=place, item=empty)
            part, at = item["content"][0], at | {"content_index": 0}
            yield event("response.content_part.added", **at, part=part | {"text": ""})
            for piece in said.pieces:
                yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
            yield event("response.output_text.done", **at, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **at, part=part)
        else:
            empty = item | {"status": "in_progress", "arguments": ""}
            yield event("response.output_item.added", output_index=place, item=empty)
            for half in (item["arguments"][:5], item["arguments"][5:]):
                yield event("response.function_call_arguments.delta", **at, delta=half)
            yield event("response.function_call_arguments.done", **at, arguments=item["arguments"])
        yield event("response.output_item.done", output_index=place, item=item)
    end = "response.incomplete" if said.cut else "response.completed"
    yield event(end, response=response_of(body, said, True))


# ---- Anthropic


def anthropic_says(body, headers):
    need(headers["x-api-key"] == "sk-anthropic" and headers["anthropic-version"], "headers")
    need(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    roles = [message["role"] for message in body["messages"]]
    need(roles[0] == "user" and all(one != other for one, other in zip(roles, roles[1:])), "roles")
    blocks = [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    need(sorted(asked) == sorted(results), "calls and results")
    need(all("input_schema" in tool for tool in body.get("tools", [])), "input_schema")
    return Said(body.get("tools"), results, body["max_tokens"])


def anthropic_blocks(said):
    if said.pieces:
        yield {"type": "text", "text": said.text}
    for index, city in enumerate(said.calls):
        yield {"type": "tool_use", "id": f"toolu_{index}", "name": "get_weather", "input": {"city": city}}


def anthropic_plain(body, said):
    usage = {"input_tokens": INPUT - 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 10}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    message |= {"content": list(anthropic_blocks(said)), "stop_sequence": None}
    message["stop_reason"] = said.end("end_turn", "max_tokens", "tool_use")
    return message | {"usage": usage | {"output_tokens": OUTPUT}}


def anthropic_stream(body, said):
    def event(kind, **fields):
        return kind, {"type": kind} | fields

    whole = anthropic_plain(body, said)
    start = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
    yield event("message_start", message=start)
    yield event("ping")
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, pieces = block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in said.pieces]
        else:
            parts = halves(block["input"]["city"])
            empty = block | {"input": {}}
            pieces = [{"type": "input_json_delta", "partial_json": part} for part in parts]
        yield event("content_block_start", index=index, content_block=empty)
        for piece in pieces:
            yield event("content_block_delta", index=index, delta=piece)
        yield event("content_block_stop", index=index)
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage={"output_tokens": OUTPUT})
    yield event("message_stop")


# ---- Gemini


def gemini_says(body, headers):
    need(headers["x-goog-api-key"] == "sk-gemini", "x-goog-api-key")
    need(all(content.get("role") in ("user", "model", None) for content in body["contents"]), "roles")
    parts = [part for content in body["contents"] for part in content["parts"]]
    asked = [part for part in parts if "functionCall" in part]
    results = [part for part in parts if "functionResponse" in part]
    need(len(asked) == len(results), "calls and results")
    need(all(part["functionResponse"]["name"] == "get_weather" for part in results), "names of results")
    need(all(isinstance(part["functionResponse"]["response"], dict) for part in results), "results are objects")
    limit = (body.get("generationConfig") or {}).get("maxOutputTokens")
    return Said(body.get("tools"), results, limit)


def gemini_answer(body, parts, end, is_over=True):
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if end:
        candidate["finishReason"] = end
    usage = {"promptTokenCount": INPUT, "totalTokenCount": INPUT}
    if is_over:
        usage |= {"candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT, "cachedContentTokenCount": 10}
    head = {"modelVersion": body["model"], "responseId": "mHlzaOuGGZiNnvgP5aqr0Q4"}
    return {"candidates": [candidate], "usageMetadata": usage} | head


def gemini_calls(said):
    return [{"functionCall": {"name": "get_weather", "args": {"city": city}}} for city in said.calls]


def gemini_plain(body, said):
    parts = [{"text": said.text}] if said.pieces else gemini_calls(said)
    return gemini_answer(body, parts, said.end("STOP", "MAX_TOKENS", "STOP"))


def gemini_stream(body, said):
    for piece in said.pieces:
        yield None, gemini_answer(body, [{"text": piece}], None, False)
    for call in gemini_calls(said):
        yield None, gemini_answer(body, [call], None, False)
    yield None, gemini_answer(body, [{"text": ""}], said.end("STOP", "MAX_TOKENS", "STOP"))


# ---- Cohere, v2


def cohere_says(body, headers):
    need(headers["authorization"] == "Bearer sk-cohere", "authorization")
    asked = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or []]
    results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    need(sorted(asked) == sorted(results), "calls and results")
    return Said(body.get("tools"), results, body.get("max_tokens"))


def cohere_usage():
    counts = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    return {"billed_units": counts, "tokens": counts}


def cohere_plain(_body, said):
    message = {"role": "assistant"}
    if said.pieces:
        message["content"] = [{"type": "text", "text": said.text}]
    if said.calls:
        message["tool_calls"] = list(chat_calls(said))
    end = said.end("COMPLETE", "MAX_TOKENS", "TOOL_CALL")
    return {"id": "c14c80c3", "finish_reason": end, "message": message, "usage": cohere_usage()}


def cohere_stream(_body, said):
    def event(kind, **fields):
        return kind, {"type": kind} | fields

    def message(**fields):
        return {"message": fields}

    start = message(role="assistant", content=[], tool_plan="", tool_calls=[], citations=[])
    yield event("message-start", id="c14c80c3", delta=start)
    if said.pieces:
        yield event("content-start", index=0, delta=message(content={"type": "text", "text": ""}))
        for piece in said.pieces:
            yield event("content-delta", index=0, delta=message(content={"text": piece}))
        yield event("content-end", index=0)
    for index, call in enumerate(chat_calls(said)):
        empty = call | {"function": call["function"] | {"arguments": ""}}
        yield event("tool-call-start", index=index, delta=message(tool_calls=empty))
        for half in halves(said.calls[index]):
            yield event("tool-call-delta", index=index, delta=message(tool_calls={"function": {"arguments": half}}))
        yield event("tool-call-end", index=index)
    end = {"finish_reason": said.end("COMPLETE", "MAX_TOKENS", "TOOL_CALL"), "usage": cohere_usage()}
    yield event("message-end", delta=end)


# ---- Bedrock, Converse


def bedrock_says(body, headers):
    need(headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/"), "signature")
    roles = [message["role"] for message in body["messages"]]
    need(roles[0] == "user" and all(one != other for one, other in zip(roles, roles[1:])), "roles")
    blocks = [block for message in body["messages"] for block in message["content"]]
    asked = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
    need(sorted(asked) == sorted(results), "calls and results")
    tools = (body.get("toolConfig") or {}).get("tools")
    need(all("json" in tool["toolSpec"]["inputSchema"] for tool in tools or []), "inputSchema")
    return Said(tools, results, (body.get("inferenceConfig") or {}).get("maxTokens"))


def bedrock_usage():
    # Cache reads are counted separately from the input here.
    counts = {"inputTokens": INPUT - 10, "outputTokens": OUTPUT, "totalTokens": INPUT + OUTPUT}
    return {"usage": counts | {"cacheReadInputTokens": 10}, "metrics": {"latencyMs": 1275}}


def bedrock_plain(_body, said):
    calls = [
        {"toolUse": {"toolUseId": f"tooluse_{index}", "name": "get_weather", "input": {"city": city}}}
        for index, city in enumerate(said.calls)
    ]
    message = {"role": "assistant", "content": [{"text": said.text}] if said.pieces else calls}
    end = said.end("end_turn", "max_tokens", "tool_use")
    return {"output": {"message": message}, "stopReason": end} | bedrock_usage()


def bedrock_stream(_body, said):
    yield "messageStart", {"role": "assistant"}
    if said.pieces:
        for piece in said.pieces:
            yield "contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}}
        yield "contentBlockStop", {"contentBlockIndex": 0}
    for index, city in enumerate(said.calls):
        start = {"toolUse": {"toolUseId": f"tooluse_{index}", "name": "get_weather"}}
        yield "contentBlockStart", {"contentBlockIndex": index, "start": start}
        for half in halves(city):
            yield "contentBlockDelta", {"contentBlockIndex": index, "delta": {"toolUse": {"input": half}}}
        yield "contentBlockStop", {"contentBlockIndex": index}
    yield "messageStop", {"stopReason": said.end("end_turn", "max_tokens", "tool_use")}
    yield "metadata", bedrock_usage()


def frame(kind, payload):
    """A frame of Amazon's event stream: lengths, their checksum, headers, payload, the checksum of it all."""
    payload = json.dumps(payload).encode()
    headers = b""
    for name, value in (
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ):
        headers += struct.pack("!B", len(name)) + name.encode() + b"\x07"
        headers += struct.pack("!H", len(value)) + value.encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack("!I", binascii.crc32(prelude))
    return prelude + headers + payload + struct.pack("!I", binascii.crc32(prelude + headers + payload))


def sse(kind, payload):
    data = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return (f"event: {kind}\n" if kind else "").encode() + f"data: {data}\n\n".encode()


# ---- embeddings


def embeddings(path, body):
    """Vectors of two numbers, or None if the path is not an embeddings path."""
    if path == "/v1/embeddings":
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        need(body.get("encoding_format") in (None, "float"), "encoding_format")
        rows = [
            {"object": "embedding", "index": index, "embedding": vector(text)} for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": INPUT, "total_tokens": INPUT}
        return {"object": "list", "data": rows, "model": body["model"], "usage": usage}
    if path.endswith(":batchEmbedContents"):
        texts = [request["content"]["parts"][0]["text"] for request in body["requests"]]
        return {"embeddings": [{"values": vector(text)} for text in texts]}
    if path == "/v2/embed":
        need(body["input_type"] and body["embedding_types"] == ["float"], "input_type")
        rows = {"float": [vector(text) for text in body["texts"]]}
        return {"id": "e", "embeddings": rows, "texts": body["texts"], "meta": {"billed_units": {"input_tokens": INPUT}}}
    if path.endswith("/invoke"):
        need("titan-embed" in path, "model")
        return {"embedding": vector(body["inputText"]), "inputTextTokenCount": INPUT}
    return None


def vector(text):
    return [len(text) / 64, -0.25]


MODELS = {
    "anthropic": {
        "data": [
            {"type": "model", "id": "claude-x", "display_name": "X", "created_at": "2025-01-01T00:00:00Z"}
        ],
        "has_more": False,
        "first_id": "claude-x",
        "last_id": "claude-x",
    },
    "gemini": {"models": [{"name": "models/gemini-x", "displayName": "X", "supportedGenerationMethods": []}]},
    "openai": {
        "object": "list",
        "data": [{"id": "gpt-x", "object": "model", "created": 1741570283, "owned_by": "openai"}],
    },
}

FORMATS = {
    "openai": (chat_says, chat_plain, chat_stream),
    "responses": (responses_says, responses_plain, responses_stream),
    "anthropic": (anthropic_says, anthropic_plain, anthropic_stream),
    "gemini": (gemini_says, gemini_plain, gemini_stream),
    "cohere": (cohere_says, cohere_plain, cohere_stream),
    "bedrock": (bedrock_says, bedrock_plain, bedrock_stream),
}


def error_of(kind, status, message):
    if kind == "anthropic":
        name = "rate_limit_error" if status == 429 else "invalid_request_error"
        return {"type": "error", "error": {"type": name, "message": message}, "request_id": "req_1"}
    if kind == "gemini":
        name = "RESOURCE_EXHAUSTED" if status == 429 else "INVALID_ARGUMENT"
        return {"error": {"code": status, "message": message, "status": name}}
    if kind in ("cohere", "bedrock"):
        return {"message": message}
    return {"error": {"message": message, "type": "requests", "param": None, "code": None}}


class Provider:
    """One fake provider, which listens inside the `with` block. `seen` has the request bodies."""

    def __init__(self, kind):
        self.kind = kind
        self.seen = []

    def __enter__(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.give(200, MODELS[provider.kind])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                provider.seen.append((self.path, body))
                kind = "responses" if self.path == "/v1/responses" else provider.kind
                path = self.path.split("?")[0]
                try:
                    if "slow down" in json.dumps(body):
                        return self.give(429, error_of(provider.kind, 429, "Too many requests."))
                    if (vectors := embeddings(path, body)) is not None:
                        return self.give(200, vectors)
                    says, plain, stream = FORMATS[kind]
                    said = says(body, self.headers)
                except (Refused, KeyError, TypeError, IndexError, AttributeError) as why:
                    return self.give(400, error_of(provider.kind, 400, f"{type(why).__name__}: {why}"))
                streams = body.get("stream") or "stream" in path.rsplit("/", 1)[-1]
                body.setdefault("model", "gemini-2.5-flash")
                if not streams:
                    return self.give(200, plain(body, said))
                binary = kind == "bedrock"
                pieces = [(frame if binary else sse)(*event) for event in stream(body, said)]
                self.stream("application/vnd.amazon.eventstream" if binary else "text/event-stream", pieces)

            def give(self, status, answer):
                answer = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def stream(self, content_type, pieces):
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
