"""Run with the packages of scripts/llama-index.txt: LlamaIndex as its users set it up. Prints what it got as JSON.

Its client knows the models of OpenAI by name, so that the gateway has a named model of such a name.
"""

import json
import os

from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai import OpenAI, OpenAIResponses

settings = {"api_base": os.environ["SDK_URL"] + "/v1", "api_key": os.environ["SDK_KEY"], "max_retries": 0}
hello = [ChatMessage(role="user", content="hello")]
chat = OpenAI(model="gpt-4o", **settings)
embed = OpenAIEmbedding(model_name="text-embedding-3-small", **settings)
got = {
    "chat": chat.chat(hello).message.content,
    "complete": chat.complete("hello").text,
    "stream": "".join(part.delta or "" for part in chat.stream_chat(hello)),
    "responses": OpenAIResponses(model="gpt-4o", **settings).chat(hello).message.content,
    "embedding": len(embed.get_text_embedding("hello")),
}
print(json.dumps(got))
