/** How clients of this gateway and of others call a named model. */
import { requestSnippets } from '@/lib/snippets'

export type Dialect = 'litellm' | 'portkey' | 'helicone' | 'openrouter' | 'bifrost'

export interface UseSnippet {
  name: string
  code: string
  /** Null: the gateway's own API, which is always served. */
  dialect: Dialect | null
}

const NAMES: Record<Dialect, string> = { litellm: 'LiteLLM', portkey: 'Portkey', helicone: 'Helicone', openrouter: 'OpenRouter', bifrost: 'Bifrost' }

export const DIALECTS = Object.keys(NAMES) as Dialect[]

/** Snippets of the gateway's own API. */
export function ownSnippets(origin: string, model: string): UseSnippet[] {
  return requestSnippets({ origin, key: null, provider: 'auto', model }).map(({ name, code }) => ({ name, code, dialect: null }))
}

/** One snippet for the clients of each other gateway. Only the address and the key differ from what applications have. */
export function dialectSnippets(origin: string, model: string): UseSnippet[] {
  return DIALECTS.map((dialect) => ({ name: NAMES[dialect], code: RENDER[dialect](`${origin}/compat/${dialect}`, model), dialect }))
}

/** A call with the OpenAI SDK for Python, which clients of most gateways use. */
function openai(baseUrl: string, model: string, headers: string | null, key = 'YOUR_KEY'): string {
  return `from openai import OpenAI

client = OpenAI(
    base_url="${baseUrl}",
    api_key="${key}",${headers === null ? '' : `\n    default_headers={${headers}},`}
)
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)`
}

const RENDER: Record<Dialect, (base: string, model: string) => string> = {
  litellm: (base, model) => openai(base, model, null),
  portkey: (base, model) => `from portkey_ai import Portkey

client = Portkey(base_url="${base}/v1", api_key="YOUR_KEY")
answer = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello!"}],
)
print(answer.choices[0].message.content)`,
  helicone: (base, model) => openai(`${base}/v1`, model, '"Helicone-Auth": "Bearer YOUR_KEY"', 'unused'),
  openrouter: (base, model) => openai(`${base}/api/v1`, model, null),
  bifrost: (base, model) => openai(`${base}/v1`, model, '"x-bf-vk": "YOUR_KEY"', 'unused'),
}
