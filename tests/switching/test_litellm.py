"""The same calls through a real LiteLLM and through the gateway with its configuration imported reach the upstream with
the same paths, models, credentials and parameters, as often and in the same order."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from switched import MASTER_KEY, post

PARALLEL = 12
CHAT = "/v1/chat/completions"


class Case:
    """A call. `body` is what it sends besides the model and the text."""

    def __init__(self, model, name=None, path=CHAT, **body):
        self.model, self.name, self.path, self.body = model, name or model, path, body

    def request(self, marker):
        text = f"Hello [[{marker}]]"
        if self.path.endswith(("/embeddings", "/responses")):
            content = {"input": text}
        elif self.path.endswith("/v1/completions"):
            content = {"prompt": text}
        else:
            content = {"messages": [{"role": "user", "content": text}]}
        return {"model": self.model} | content | self.body


def cases(*models):
    return [Case(model) for model in models]


SAME = [
    # Addresses and credentials.
    *cases("plain", "without-v1", "slash", "deeper", "environment", "literal", "base-url", "path-in-model", "gpt-4o"),
    *cases("anchored", "credential", "no-prefix", "given-provider"),
    # Providers. LiteLLM and the gateway have other numbers for calls of Anthropic's models without a limit.
    Case("claude", max_tokens=100),
    Case("claude-full", max_tokens=100),
    *cases("gemini-beta", "cohere", "mistral", "codestral", "groq", "together", "fireworks", "deepseek"),
    *cases("deepseek-beta", "xai", "perplexity", "openrouter", "cerebras", "nvidia", "huggingface", "vllm"),
    *cases("lm-studio", "litellm-proxy", "custom-openai"),
    # Paths.
    Case("plain", "chat without v1", "/chat/completions"),
    Case("plain", "responses", "/v1/responses"),
    Case("plain", "completions", "/v1/completions"),
    Case("text-completion", "completions of a completion model", "/v1/completions"),
    Case("embed", "embeddings", "/v1/embeddings"),
    Case("embed", "embeddings without v1", "/embeddings"),
    Case("claude", "messages", "/v1/messages", max_tokens=100),
    Case("plain", "stream", stream=True),
    Case("claude", "stream of claude", stream=True, max_tokens=100),
    Case("claude", "stream of messages", "/v1/messages", stream=True, max_tokens=100),
    # Wildcards: an exact name wins, then the longest pattern.
    *cases("wild/ok-any", "wild/exact", "wild/ok-deep/ok-x", "openai/ok-direct", "prefixed/ok-a"),
    # Several deployments.
    *cases("weighted", "by-rpm", "ordered", "ordered-fails"),
    # Parameters.
    *cases("defaults", "extra"),
    Case("defaults", "defaults overridden", temperature=0.9),
    Case("plain", "metadata", metadata={"team": "blue"}, litellm_session_id="s-1"),
    # Aliases have the fallbacks of their own names.
    *cases("alias", "hidden-alias", "alias-with-own", "alias-without"),
    # Retries and fallbacks.
    *cases("fails", "recovers", "limited", "gone", "unauthorized", "own-retries", "max-retries"),
    *cases("chain", "nested", "branch", "without-default", "after-401", "after-404", "after-429", "both"),
    Case("to-claude", max_tokens=100),
    Case("calm", "no retries for one call", num_retries=0),
    Case("no-fallbacks", "no fallbacks for one call", disable_fallbacks=True),
    Case("fails", "stream after a fallback", stream=True),
    # Each has a model of its own, so that no circuit breaker opens.
    Case("call-1", "fallbacks of one call", fallbacks=["plain"]),
    Case("call-2", "several fallbacks of one call", fallbacks=["call-second", "plain"]),
    Case("call-3", "fallbacks of one call by model", fallbacks=[{"call-3": ["plain"]}]),
    Case("call-4", "fallbacks of one call for all models", fallbacks=[{"*": ["plain"]}]),
    Case("call-5", "fallbacks of one call for another model", fallbacks=[{"other": ["plain"]}]),
    Case("call-6", "an empty list of fallbacks", fallbacks=[]),
    Case("call-7", "a fallback that has fallbacks", fallbacks=["call-nested"]),
    Case("short", "fallbacks by model and a long input", fallbacks=[{"short": ["plain"]}]),
    Case("wild/500-named", "fallbacks of a name that a pattern serves"),
    # Refusals.
    *cases("short", "strict-openai"),
    Case("short-claude", max_tokens=100),
    Case("strict", max_tokens=100),
]


# Where the two differ: the case, what the upstream sees of LiteLLM and of the gateway, and the field of the deployment
# whose finding says so.
BEFORE_V1 = "/openai/deployments/{}/chat/completions?api-version={}"
DIFFERENT = [
    (Case("azure"), [BEFORE_V1.format("ok-azure", "2024-10-21")], ["/openai/v1/chat/completions"], "api_version"),
    (
        Case("azure-default"),
        [BEFORE_V1.format("ok-azure-default", "2025-02-01-preview")],
        ["/openai/v1/chat/completions"],
        "model",
    ),
    (Case("text-completion"), ["/v1/completions"], ["/v1/chat/completions"], "model"),
    (Case("gemini"), ["/models/ok-gemini:generateContent"], ["/v1beta/models/ok-gemini:generateContent"], "api_base"),
]


class Observed:
    """What one gateway answered, and what reached the upstream."""

    def __init__(self, answer, calls):
        self.status, self.text, self.calls = answer.status, answer.text, [str(call) for call in calls]

    @property
    def outcome(self):
        """Failures have other words and statuses in LiteLLM; which of both sides is at fault is the same."""
        return "served" if self.status < 400 else "refused" if self.status < 500 else "failed"

    def paths(self):
        return [call.split()[0] for call in self.calls]

    def models(self):
        return [call.split()[1] for call in self.calls]


class Sides:
    """Sends a case to LiteLLM and to the gateway."""

    def __init__(self, upstream, litellm, switched):
        self.upstream = upstream
        self.sides = {
            "litellm": (litellm.url, MASTER_KEY),
            "gateway": (switched.compat("litellm"), switched.key),
        }

    def send(self, side, case, number=0):
        url, key = self.sides[side]
        marker = f"{side}: {case.name} {number}"
        answer = post(url + case.path, key, case.request(marker))
        return Observed(answer, self.upstream.take(marker))


@pytest.fixture(scope="module")
def sides(upstream, litellm, imported):
    return Sides(upstream, litellm, imported[0])


@pytest.fixture(scope="module")
def observed(request, sides):
    """All chosen cases, sent at once, because LiteLLM waits for seconds before its retries."""
    params = [getattr(item, "callspec", None) and item.callspec.params for item in request.session.items]
    chosen = {given["case"].name: given["case"] for given in params if given and "case" in given}
    with ThreadPoolExecutor(PARALLEL) as pool:
        pending = {
            (side, name): pool.submit(sides.send, side, case)
            for name, case in chosen.items()
            for side in sides.sides
        }
    return {key: future.result() for key, future in pending.items()}


@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_the_upstream_sees_the_same_calls(case, observed):
    theirs, ours = observed["litellm", case.name], observed["gateway", case.name]
    answers = f"LiteLLM: {theirs.text}\nthe gateway: {ours.text}"
    assert ours.calls == theirs.calls, answers
    assert ours.outcome == theirs.outcome, answers
    if theirs.outcome == "served" and theirs.calls:
        said = f"Served by {theirs.models()[-1]}"
        assert (said in ours.text) == (said in theirs.text)


def test_deployments_of_one_name_share_the_calls(sides):
    case = Case("balanced")
    seen = {}
    for side in sides.sides:
        with ThreadPoolExecutor(PARALLEL) as pool:
            answers = list(pool.map(lambda number: sides.send(side, case, number), range(24)))
        assert all(answer.status == 200 and len(answer.calls) == 1 for answer in answers)
        seen[side] = {call for answer in answers for call in answer.calls}
    assert len(seen["litellm"]) == 2
    assert seen["gateway"] == seen["litellm"]


@pytest.mark.parametrize(
    ("case", "their_paths", "our_paths", "field"), DIFFERENT, ids=[case.name for case, *_ in DIFFERENT]
)
def test_a_finding_names_what_differs(case, their_paths, our_paths, field, observed, config, imported):
    assert observed["litellm", case.name].paths() == their_paths
    assert observed["gateway", case.name].paths() == our_paths
    assert status_of(imported[1], deployment(config[0], case.model), field) == "approximate"


def test_deployments_of_one_name_share_the_retries(sides):
    """Which one is called again is chance in LiteLLM; how often the upstream is called is not."""
    case = Case("pair")
    ours, theirs = sides.send("gateway", case), sides.send("litellm", case)
    pair = {"500-pair-a", "500-pair-b"}
    assert set(ours.models()[:-1]) == pair and set(theirs.models()[:-1]) <= pair
    assert len(ours.calls) == len(theirs.calls) == 3
    assert ours.models()[-1] == theirs.models()[-1] == "ok-last-resort"


def test_a_refusal_ends_the_call_only_here(sides, imported):
    case = Case("after-400")
    assert sides.send("litellm", case).models() == ["400-after", "ok-plain"]
    assert sides.send("gateway", case).models() == ["400-after"]
    assert finding(imported[1], "router_settings.fallbacks")["status"] == "approximate"


def test_default_fallbacks_serve_unknown_names_only_in_litellm(sides, imported):
    case = Case("no-such-model")
    assert sides.send("litellm", case).models() == ["ok-last-resort"]
    ours = sides.send("gateway", case)
    assert (ours.outcome, ours.calls) == ("refused", [])
    assert finding(imported[1], "router_settings.default_fallbacks")["status"] == "approximate"


def test_messages_for_a_model_of_openai_go_to_another_path(sides):
    """Both translate them, LiteLLM into responses and the gateway into chat completions."""
    case = Case("plain", "messages of an OpenAI model", "/v1/messages", max_tokens=50)
    ours, theirs = sides.send("gateway", case), sides.send("litellm", case)
    assert (theirs.paths(), theirs.outcome) == (["/v1/responses"], "served")
    assert (ours.paths(), ours.outcome) == (["/v1/chat/completions"], "served")


def deployment(config, model):
    """The path of the first deployment of a model."""
    names = [entry["model_name"] for entry in yaml.safe_load(config)["model_list"]]
    return f"model_list[{names.index(model)}].litellm_params"


def status_of(report, path, field):
    return finding(report, f"{path}.{field}")["status"]


def finding(report, path):
    return next(found for found in report["findings"] if found["path"] == path)
