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
  provider: string
  model: string
  /** The format of the request, for providers that may speak another one. */
  format?: string
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

const formatOf = (format: string | undefined, write: (format: string) => string): string => (format === undefined ? '' : write(format))

function curl({ origin, key, provider, model, format }: FilledChoice): string {
  return `curl ${origin}/v1/chat/completions \\
  -H "X-Gateway-Key: ${key}" \\
  -H "X-Gateway-Provider: ${provider}" \\${formatOf(format, (name) => `\n  -H "X-Gateway-Format: ${name}" \\`)}
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}", "messages": [{"role": "user", "content": "Hello!"}]}'`
}

function python({ origin, key, provider, model, format }: FilledChoice): string {
  return `from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key="${key}",
    default_headers={"X-Gateway-Key": "${key}", "X-Gateway-Provider": "${provider}"${formatOf(format, (name) => `, "X-Gateway-Format": "${name}"`)}},
)
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)`
}

function typescript({ origin, key, provider, model, format }: FilledChoice): string {
  return `import OpenAI from 'openai'

const client = new OpenAI({
  baseURL: '${origin}/v1',
  apiKey: '${key}',
  defaultHeaders: { 'X-Gateway-Key': '${key}', 'X-Gateway-Provider': '${provider}'${formatOf(format, (name) => `, 'X-Gateway-Format': '${name}'`)} },
})
const answer = await client.chat.completions.create({
  model: '${model}',
  messages: [{ role: 'user', content: 'Hello!' }],
})
console.log(answer.choices[0].message.content)`
}

/** curl snippet for a management API call. */
export function apiSnippet(origin: string, path: string, body: unknown): string {
  return `curl ${origin}/api/v1${path} \\
  -H "X-Gateway-Key: YOUR_KEY" \\
  -d '${JSON.stringify(body)}'`
}
