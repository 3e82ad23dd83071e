/** Ready-to-run request snippets in several languages, with base URL and key filled in. */

export interface RequestSnippet {
  name: string
  /** Displayed code, with the key masked. */
  code: string
  /** Returns the code with the real key. */
  copy: () => string
}

export interface SnippetChoice {
  origin: string
  /** The raw key, or null if it is no longer in memory. */
  key: string | null
  /** `auto` for a named model of the organization. */
  provider: string
  model: string
}

/** `sk-gateway-1a2b3c4d…`: the prefix that identifies the key. */
export function maskKey(key: string): string {
  return `${key.slice(0, 19)}…`
}

export function requestSnippets(choice: SnippetChoice): RequestSnippet[] {
  return [
    { name: 'curl', render: curl },
    { name: 'Python', render: python },
    { name: 'TypeScript', render: typescript },
  ].map(({ name, render }) => ({
    name,
    code: render({ ...choice, key: choice.key === null ? 'YOUR_KEY' : maskKey(choice.key) }),
    copy: () => render({ ...choice, key: choice.key ?? 'YOUR_KEY' }),
  }))
}

interface FilledChoice extends SnippetChoice {
  key: string
}

/** Standard clients need a base URL and a key only; the model names its provider. */
const modelOf = ({ provider, model }: FilledChoice): string => (provider === 'auto' ? model : `${provider}/${model}`)

function curl(choice: FilledChoice): string {
  return `curl ${choice.origin}/sdk/v1/chat/completions \\
  -H "Authorization: Bearer ${choice.key}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${modelOf(choice)}", "messages": [{"role": "user", "content": "Hello!"}]}'`
}

function python(choice: FilledChoice): string {
  return `from openai import OpenAI

client = OpenAI(base_url="${choice.origin}/sdk/v1", api_key="${choice.key}")
answer = client.chat.completions.create(
    model="${modelOf(choice)}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)`
}

function typescript(choice: FilledChoice): string {
  return `import OpenAI from 'openai'

const client = new OpenAI({ baseURL: '${choice.origin}/sdk/v1', apiKey: '${choice.key}' })
const answer = await client.chat.completions.create({
  model: '${modelOf(choice)}',
  messages: [{ role: 'user', content: 'Hello!' }],
})
console.log(answer.choices[0].message.content)`
}

/** The settings of any other client. */
export function clientSettings(choice: SnippetChoice): { code: string; copy: () => string } {
  const write = (key: string) =>
    [
      `Base URL for OpenAI clients            ${choice.origin}/sdk/v1`,
      `Base URL for Anthropic and Google      ${choice.origin}/sdk`,
      `API key                                ${key}`,
      `Model                                  ${modelOf({ ...choice, key })}`,
    ].join('\n')
  return { code: write(choice.key === null ? 'YOUR_KEY' : maskKey(choice.key)), copy: () => write(choice.key ?? 'YOUR_KEY') }
}

/** curl snippet for a management API call. */
export function apiSnippet(origin: string, path: string, body: unknown): string {
  return `curl ${origin}/api/v1${path} \\
  -H "X-Gateway-Key: YOUR_KEY" \\
  -d '${JSON.stringify(body)}'`
}
