"""Deliveries verified by an independent receiver, the Standard Webhooks package."""

import json

import pytest
from receiver import Receiver
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


@pytest.fixture
def receiver():
    with Receiver() as running:
        yield running


def lower(headers):
    return {name.lower(): value for name, value in headers.items()}


def test_an_event_verifies_and_a_changed_one_does_not(call, receiver):
    hook = call("POST", "/webhooks", {"url": receiver.url + "/hook", "events": ["key.create"]})
    key = call("POST", "/keys", {"name": 'grün "quoted" \U0001f600'})
    path, headers, body = receiver.wait_for(1)[0]

    event = Webhook(hook["secret"]).verify(body, lower(headers))

    assert path == "/hook"
    assert event["type"] == "key.create"
    assert event["data"]["key_id"] == key["key"]["id"]
    assert event["id"] == lower(headers)["webhook-id"]
    with pytest.raises(WebhookVerificationError):
        Webhook(hook["secret"]).verify(body.replace(b"key.create", b"key.revoke"), lower(headers))


def test_both_secrets_verify_while_one_replaces_the_other(call, receiver):
    hook = call("POST", "/webhooks", {"url": receiver.url, "events": ["app.create"]})
    fresh = call("POST", f"/webhooks/{hook['id']}/rotate-secret", {"overlap_hours": 1})
    call("POST", f"/webhooks/{hook['id']}/test", {})
    _, headers, body = receiver.wait_for(1)[0]

    for secret in (hook["secret"], fresh["secret"]):
        assert Webhook(secret).verify(body, lower(headers))["type"] == "webhook.test"


def test_a_batch_of_an_export_verifies_too(call, client, receiver):
    secret = "whsec_" + "c2VjcmV0IG9mIHRoZSBleHBvcnQ="
    export = {"name": "batches", "kind": "webhook", "endpoint": receiver.url, "secret": secret}
    made = call("POST", "/exports", export)
    client.chat.completions.create(model="sandbox-1", messages=[{"role": "user", "content": "Hello"}])
    _, headers, body = receiver.wait_for(1)[0]
    call("DELETE", f"/exports/{made['id']}")

    batch = Webhook(secret).verify(body, lower(headers))

    assert batch["type"] == "trace.batch"
    assert batch["data"]["traces"][0]["provider"] == "sandbox"
    assert json.loads(body)["id"] == lower(headers)["webhook-id"]
