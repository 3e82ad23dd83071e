"""Run with the packages of scripts/helicone.txt: Helicone's own wrapper of OpenAI's client. Prints what it got as JSON."""

import json
import os

from helicone.globals import helicone_global
from helicone.openai_proxy import Meta, openai

helicone_global.api_key = os.environ["COMPAT_KEY"]
helicone_global.proxy_url = os.environ["COMPAT_URL"] + "/helicone/v1"
openai.api_key = "sk-of-the-caller"
HELLO = [{"role": "user", "content": "Hello [[clients]]"}]


def ask(**settings):
    answer = openai.ChatCompletion.create(messages=HELLO, **settings)
    helicone = answer["helicone"]
    return {"text": answer["choices"][0]["message"]["content"], "id": helicone.id, "cache": helicone.cache}


answers = [
    ask(model="flaky1-wrapped", heliconeMeta=Meta(retry=True), properties={"Environment": "wrapper"}),
    ask(model="gpt-4o", heliconeMeta=Meta(cache=True)),
    ask(model="gpt-4o", heliconeMeta=Meta(cache=True)),
]
stream = openai.ChatCompletion.create(model="gpt-4o", messages=HELLO, stream=True)
answers.append({"text": "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in stream if chunk["choices"])})
print(json.dumps(answers))
