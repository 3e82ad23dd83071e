"""Hooks of the schemathesis run.

Generated bodies hold generated URLs, and the gateway calls some of those (webhooks, exports, providers).
Their host is replaced before they are sent, so that a test run never talks to anybody but this machine.

A generated organization id is nobody's, and its 404 would hide all that lies behind it. Four of five requests
therefore name the organization under test; a malformed id stays as it is.
"""

import itertools
import os
import re

import schemathesis

UUID = re.compile(r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REQUESTS = itertools.count(1)

URL = re.compile(r"(?i)\b(https?|wss?)://[^/?#\s\"]*")
NOWHERE = r"\1://127.0.0.1:9"


@schemathesis.hook
def before_call(ctx, case, kwargs):
    case.body = on_loopback(case.body)
    if case.query:
        case.query = on_loopback(case.query)
    if next(REQUESTS) % 5 == 0:
        return
    for name in ("orgId", "org_id"):
        if UUID.fullmatch(str((case.path_parameters or {}).get(name))):
            case.path_parameters[name] = os.environ["HOOKS_ORGANIZATION"]


def on_loopback(value):
    if isinstance(value, str):
        return URL.sub(NOWHERE, value)
    if isinstance(value, bytes):
        return URL.sub(NOWHERE, value.decode("latin-1")).encode("latin-1")
    if isinstance(value, list):
        return [on_loopback(item) for item in value]
    if isinstance(value, dict):
        return {key: on_loopback(item) for key, item in value.items()}
    return value
