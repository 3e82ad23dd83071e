import { api } from '@/api/client'
import { agentSnippets } from '@/lib/agents'
import { allows } from '@/lib/scope'
import { requestSnippets } from '@/lib/snippets'
import { Button, Dialog, OneTimeSecret, Snippets } from '@/ui'

/** Shows a new key once, with a request snippet. */
export function NewKeySecret({ title, rawKey, scopes, onClose }: { title: string; rawKey: string; scopes: readonly string[]; onClose: () => void }) {
  const offers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const isForAgents = scopes.some((scope) => scope.startsWith('mcp:')) && !scopes.some((scope) => /^(proxy$|provider:|model:)/.test(scope))
  const target = firstTarget(offers.data?.providers ?? [], scopes)
  return (
    <Dialog open onClose={onClose} title={title} size="lg" actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <OneTimeSecret title="Your new key" secret={rawKey} />
      {isForAgents ? (
        <Snippets label="Connect an agent" snippets={agentSnippets({ origin: location.origin, server: null, key: rawKey })} />
      ) : (
        <Snippets label="A first request" snippets={requestSnippets({ origin: location.origin, key: rawKey, ...target })} />
      )}
    </Dialog>
  )
}

/** A callable and configured model for the snippet, preferring the sandbox, which needs no account. */
function firstTarget(providers: { name: string; configured: boolean; models: { id: string }[] }[], scopes: readonly string[]): { provider: string; model: string } {
  const ordered = [...providers].sort((a, b) => rank(b) - rank(a))
  for (const { name, models } of ordered) {
    const model = models.find(({ id }) => allows(scopes, name, id))
    if (model) return { provider: name, model: model.id }
  }
  return { provider: 'sandbox', model: 'sandbox-small' }
}

function rank(provider: { name: string; configured: boolean }): number {
  return provider.name === 'sandbox' ? 2 : provider.configured ? 1 : 0
}
