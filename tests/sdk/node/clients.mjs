// JavaScript clients with nothing but a base URL and a key. Prints the name of each client that got its answers.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const model = "sandbox/sandbox-small";
const answer = "The sandbox read: hello";
const [baseURL, apiKey] = [`${process.env.SDK_URL}/v1`, process.env.SDK_KEY];

const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "hello" }];
const said = await openai.chat.completions.create({ model, messages });
assert.equal(said.choices[0].message.content, answer);
let streamed = "";
for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(streamed, answer);
const response = await openai.responses.create({ model, input: "hello" });
assert.equal(response.output_text, answer);
await assert.rejects(openai.chat.completions.create({ model: "no-such-model", messages }), OpenAI.BadRequestError);
console.log("openai");

const langchain = new ChatOpenAI({ model, apiKey, maxRetries: 0, configuration: { baseURL } });
assert.equal((await langchain.invoke("hello")).content, answer);
console.log("langchain");

// The provider's default is the Responses API; `chat` is the other one.
const provider = createOpenAI({ baseURL, apiKey });
for (const chosen of [provider(model), provider.chat(model)]) {
  assert.equal((await generateText({ model: chosen, prompt: "hello", maxRetries: 0 })).text, answer);
  let text = "";
  for await (const part of streamText({ model: chosen, prompt: "hello", maxRetries: 0 }).textStream) text += part;
  assert.equal(text, answer);
}
console.log("vercel-ai");
