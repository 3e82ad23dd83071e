"""One upstream, a real LiteLLM in front of it, and the gateway with LiteLLM's configuration imported."""

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "lib"))

from litellm_proxy import Litellm  # noqa: E402
from running import Gateway  # noqa: E402
from switched import COMPAT, MASTER_KEY, Switched  # noqa: E402
from upstream import Upstream  # noqa: E402

# pytest closes its fixtures on Ctrl-C but not on SIGTERM, which would leave processes running.
signal.signal(signal.SIGTERM, signal.default_int_handler)

CONFIG = Path(__file__).with_name("litellm.yaml")


@pytest.fixture(scope="session")
def upstream():
    with Upstream() as running:
        yield running


@pytest.fixture(scope="session")
def config(upstream):
    """LiteLLM's configuration, and the environment that it refers to."""
    environment = {
        "SWITCH_KEY_A": "sk-upstream-a",
        "SWITCH_KEY_B": "sk-upstream-b",
        "SWITCH_BASE": f"{upstream.url}/environment/v1",
        "SWITCH_MASTER_KEY": MASTER_KEY,
    }
    return CONFIG.read_text().replace("http://upstream", upstream.url), environment


@pytest.fixture(scope="session")
def imported(config):
    """The gateway with the configuration, and the report of the import."""
    with Gateway(GATEWAY_COMPAT=COMPAT) as gateway:
        switched = Switched(gateway, gateway.signup())
        report = switched.import_file("litellm", *config)
        switched.restart()
        yield switched, report


@pytest.fixture(scope="session")
def litellm(config):
    """LiteLLM needs 10 to 20 seconds of a processor to start, so that the tests share one."""
    text, environment = config
    with Litellm(text, environment) as running:
        yield running
