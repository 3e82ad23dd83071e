/** A first request in several languages, with the address and key that make it work as it is. */

export interface RequestSnippet {
  name: string
  /** As it is shown: the key is masked. */
  code: string
  /** As it is copied. */
  copy: () => string
}

export interface SnippetChoice {
  origin: string
  /** The raw key, or null where it is not known any more. */
  key: string | null
  provider: string
  model: string
}

/** `sk-gateway-1a2b3c4d…`: enough to tell which key it is. */
export function maskKey(key: string): string {
  return `${key.slice(0, 19)}…`
}

export function requestSnippets(choice: SnippetChoice): RequestSnippet[] {
  return [
    { name: 'curl', write: curl },
    { name: 'Python', write: python },
    { name: 'TypeScript', write: typescript },
  ].map(({ name, write }) => ({
    name,
    code: write({ ...choice, key: choice.key === null ? 'YOUR_KEY' : maskKey(choice.key) }),
    copy: () => write({ ...choice, key: choice.key ?? 'YOUR_KEY' }),
  }))
}

interface Filled extends SnippetChoice {
  key: string
}

function curl({ origin, key, provider, model }: Filled): string {
  return `curl ${origin}/v1/chat/completions \\
  -H "X-Gateway-Key: ${key}" \\
  -H "X-Gateway-Provider: ${provider}" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}", "messages": [{"role": "user", "content": "Hello!"}]}'`
}

function python({ origin, key, provider, model }: Filled): string {
  return `from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key="${key}",
    default_headers={"X-Gateway-Key": "${key}", "X-Gateway-Provider": "${provider}"},
)
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)`
}

function typescript({ origin, key, provider, model }: Filled): string {
  return `import OpenAI from 'openai'

const client = new OpenAI({
  baseURL: '${origin}/v1',
  apiKey: '${key}',
  defaultHeaders: { 'X-Gateway-Key': '${key}', 'X-Gateway-Provider': '${provider}' },
})
const answer = await client.chat.completions.create({
  model: '${model}',
  messages: [{ role: 'user', content: 'Hello!' }],
})
console.log(answer.choices[0].message.content)`
}

/** A call of the management API, for those who would rather script what a page does. */
export function apiSnippet(origin: string, path: string, body: unknown): string {
  return `curl ${origin}/api/v1${path} \\
  -H "X-Gateway-Key: YOUR_KEY" \\
  -d '${JSON.stringify(body)}'`
}
