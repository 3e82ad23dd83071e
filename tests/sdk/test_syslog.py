"""The syslog export of the audit log, read by an independent parser of RFC 5424."""

import json
import re
import urllib.request

import pytest
from running import open_url
from syslog_rfc5424_parser import SyslogMessage
from syslog_rfc5424_parser.constants import SyslogFacility, SyslogSeverity

# Quotes, brackets, backslashes and letters outside ASCII in what users choose. The parser cannot read a value that ends
# with an escaped backslash.
NAMES = ['quoted "name"', "back\\slash", "closing ] bracket", '\\"] and more', "grün \U0001f600"]


@pytest.fixture
def audit(gateway):
    """The log of a new organization: what it was told to do, and a function that exports it."""
    owner = gateway.signup()

    def send(method, path, body=None, token=owner["token"]):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(gateway.url + "/api/v1" + path, data, headers, method=method)
        with open_url(request) as answer:
            return answer.read().decode()

    def export(format):
        return send("GET", f"/orgs/{owner['org']['id']}/audit/export?format={format}").splitlines()

    for name in NAMES:
        send("POST", "/keys", {"name": name})
    return owner["org"]["id"], export


def test_every_line_is_a_message_that_says_what_the_entry_says(audit):
    org, export = audit
    entries = [json.loads(line) for line in export("jsonl")[:-1]]
    lines = export("syslog")
    assert len(lines) >= len(entries) > len(NAMES)

    for entry, line in zip(entries, lines):
        message = SyslogMessage.parse(line)

        assert message.facility == SyslogFacility.audit
        assert message.severity == SyslogSeverity.info
        assert (message.version, message.appname, message.msgid) == (1, "gateway", entry["action"])
        assert message.timestamp == entry["at"]
        (element, told), = message.sd.items()
        assert element == "audit@32473"
        expected = {
            "org": org,
            "seq": str(entry["seq"]),
            "id": entry["id"],
            "actorType": entry["actor"]["type"],
            "targetType": entry["target"]["type"],
            "outcome": entry["outcome"],
            "requestId": entry["request_id"],
            "prevHash": entry["prev_hash"],
            "hash": entry["hash"],
        }
        assert {name: told.get(name) for name in expected} == expected


def test_chosen_names_arrive_without_breaking_the_line(audit):
    _, export = audit
    created = [SyslogMessage.parse(line) for line in export("syslog") if " key.create " in line]
    told = [message.sd["audit@32473"]["targetName"] for message in created]
    assert [unescaped(text) for text in told] == NAMES


def unescaped(text):
    """The parser leaves the three escapes of RFC 5424 as they are."""
    return re.sub(r'\\(["\\\]])', r"\1", text)
