import { Link } from '@tanstack/react-router'
import { Section, Snippets } from '@/ui'
import { dialectSnippets, ownSnippets, type Dialect } from './dialects'

/** Snippets that call a model, with the gateway's own API and with the clients of other gateways. */
export function UseIt({ model }: { model: string }) {
  const name = model.endsWith('*') ? `${model.slice(0, -1)}…` : model
  return (
    <div className="flex flex-col gap-4">
      <Section title="With the gateway’s own API">
        <Snippets label="Language" snippets={ownSnippets(location.origin, name)} />
        <p className="mt-2 text-xs text-muted">
          Any OpenAI client works with this base URL and a key from <Link to="/keys" className="text-accent underline">Keys</Link>. Anthropic and Google SDKs use <code>{location.origin}/sdk</code>: see <a href="/console/docs/sdk" className="text-accent underline">Standard clients</a>.
        </p>
      </Section>
      <DialectSnippets model={name} />
    </div>
  )
}

/** Snippets for clients of other gateways: those of one, or of all. */
export function DialectSnippets({ model, only }: { model: string; only?: Dialect }) {
  const snippets = dialectSnippets(location.origin, model).filter((snippet) => only === undefined || snippet.dialect === only)
  const names = snippets.map((snippet) => snippet.dialect).join(',')
  return (
    <Section title="With the client of another gateway">
      <Snippets label="Client" snippets={snippets} />
      <p className="mt-2 text-xs text-muted">
        Applications keep their headers and change the base URL and the key. The operator must have named the gateway in <code>GATEWAY_COMPAT={names}</code>; otherwise the address responds with 404.
      </p>
    </Section>
  )
}
