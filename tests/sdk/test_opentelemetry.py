"""OpenTelemetry in both directions: its SDK sends spans to the gateway, its messages decode what the gateway exports."""

import gzip
import time

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult, SimpleSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from receiver import Receiver


def provider_for(gateway, account, compression, results):
    """The SDK as a user sets it up; the result of each batch goes into `results`."""
    exporter = OTLPSpanExporter(
        endpoint=gateway.url + "/api/v1/otel/v1/traces",
        headers={"X-Gateway-Key": account["api_key"]},
        compression=compression,
    )
    export = exporter.export
    exporter.export = lambda spans: results.append(export(spans)) or results[-1]
    provider = TracerProvider(resource=Resource.create({"service.name": "walrus-bot"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def rows_of(call, session, count):
    deadline = time.monotonic() + 20
    while True:
        rows = call("GET", f"/logs?source=otel&session_id={session}")["logs"]
        if len(rows) >= count:
            return rows
        assert time.monotonic() < deadline, f"{len(rows)} of {count} rows came"
        time.sleep(0.05)


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_a_span_of_the_sdk_becomes_a_row(gateway, account, call, compression):
    session, results = f"sdk-{compression.value}", []
    provider = provider_for(gateway, account, compression, results)
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("workflow"), tracer.start_as_current_span(
        "chat gpt-4o", kind=SpanKind.CLIENT
    ) as span:
        span.set_attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.input_tokens": 1000,
                "gen_ai.usage.output_tokens": 50,
                "gen_ai.conversation.id": session,
            }
        )
        trace_id = f"{span.get_span_context().trace_id:032x}"
        span.set_status(Status(StatusCode.ERROR, "it broke"))
    provider.shutdown()

    assert results == [SpanExportResult.SUCCESS] * 2
    (row,) = rows_of(call, session, 1)
    assert (row["provider"], row["model"], row["prompt_tokens"]) == ("openai", "gpt-4o", 1000)
    assert row["cost_usd"] > 0
    assert row["level"] == "error"
    assert row["request_id"].startswith(trace_id)
    assert row["metadata"]["service_name"] == "walrus-bot"


def test_what_we_export_is_read_by_the_messages_of_opentelemetry(call, client):
    with Receiver() as receiver:
        made = call("POST", "/exports", {"name": "collector", "kind": "otlp", "endpoint": receiver.url})
        trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        raw = client.chat.completions.with_raw_response.create(
            model="sandbox-1",
            messages=[{"role": "user", "content": "Where is the walrus?"}],
            extra_headers={"traceparent": f"00-{trace}-{parent}-01"},
        )
        path, headers, body = receiver.wait_for(1)[0]
        call("DELETE", f"/exports/{made['id']}")

    assert path == "/v1/traces"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers["content-encoding"] == "gzip"
    message = ExportTraceServiceRequest.FromString(gzip.decompress(body))
    (resource,) = message.resource_spans
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes}[
        "service.name"
    ] == "gateway"
    (scope,) = resource.scope_spans
    assert scope.schema_url == "https://opentelemetry.io/schemas/1.41.0"
    (span,) = scope.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, parent)
    assert (span.name, span.kind) == ("chat sandbox-1", SpanKind.CLIENT.value + 1)
    attributes = {pair.key: pair.value for pair in span.attributes}
    assert attributes["gen_ai.operation.name"].string_value == "chat"
    assert attributes["gen_ai.provider.name"].string_value == "sandbox"
    assert attributes["gen_ai.usage.input_tokens"].int_value > 0
    assert attributes["gateway.log_id"].int_value == int(raw.headers["X-Gateway-Log-Id"])
    assert "Where is the walrus?" in attributes["gen_ai.input.messages"].string_value
    assert span.end_time_unix_nano >= span.start_time_unix_nano > 0


def spans_in(requests):
    for _, _, body in requests:
        message = ExportTraceServiceRequest.FromString(gzip.decompress(body))
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                yield from scope.spans


def test_verdicts_are_events_below_the_call_that_they_are_on(call, client):
    with Receiver() as receiver:
        made = call("POST", "/exports", {"name": "verdicts", "kind": "otlp", "endpoint": receiver.url})
        definition = {"type": "static", "evaluator": "contains", "config": {"value": "walrus"}}
        judge = call("POST", "/evals", {"name": "finds it", "sample_rate": 1} | definition)
        raw = client.chat.completions.with_raw_response.create(
            model="sandbox-1", messages=[{"role": "user", "content": "Where is the walrus?"}]
        )
        log_id = int(raw.headers["X-Gateway-Log-Id"])
        verdict = {"subject_type": "log", "subject_id": log_id, "source": "ragas", "score": 0.25}
        call("POST", "/eval-results", verdict | {"details": {"reason": "not grounded"}})
        deadline = time.monotonic() + 20
        while True:
            spans = list(spans_in(receiver.requests))
            judged = {span.name: span for span in spans if span.events}
            if len(judged) == 2:
                break
            assert time.monotonic() < deadline, f"only {sorted(judged)} came"
            time.sleep(0.05)
        call("DELETE", f"/exports/{made['id']}")
        call("DELETE", f"/evals/{judge['id']}")

    def number(span, name):
        return {pair.key: pair.value.int_value for pair in span.attributes}.get(name)

    (row,) = [span for span in spans if number(span, "gateway.log_id") == log_id]
    for name, score, label in [("finds it", 1.0, "passed"), ("ragas", 0.25, "failed")]:
        span = judged[f"evaluate {name}"]
        assert (span.trace_id, span.parent_span_id) == (row.trace_id, row.span_id)
        (event,) = span.events
        assert event.name == "gen_ai.evaluation.result"
        assert event.time_unix_nano >= row.start_time_unix_nano
        attributes = {pair.key: pair.value for pair in event.attributes}
        assert attributes["gen_ai.evaluation.name"].string_value == name
        assert attributes["gen_ai.evaluation.score.value"].double_value == score
        assert attributes["gen_ai.evaluation.score.label"].string_value == label
    assert attributes["gen_ai.evaluation.explanation"].string_value == "not grounded"
