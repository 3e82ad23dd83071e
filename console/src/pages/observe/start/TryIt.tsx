import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { api } from '@/api/client'
import { copyText } from '@/lib/clipboard'
import { defaultModel } from '@/lib/defaultModel'
import { useShortcuts } from '@/lib/shortcuts'
import { clientSettings, requestSnippets } from '@/lib/snippets'
import { Field, Radio, Select, Snippets, toast, type Snippet } from '@/ui'

const SANDBOX = { provider: 'sandbox', model: 'sandbox-small' }

/** Request snippets with base URL and key, by default for the sandbox provider. */
export function TryIt({ rawKey, onCopied }: { rawKey: string | null; onCopied(): void }) {
  const [own, setOwn] = useState(false)
  const [chosen, setChosen] = useState('')
  const [language, setLanguage] = useState('curl')
  const providers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const offered = (providers.data?.providers ?? []).filter((provider) => provider.name !== 'sandbox' && provider.models.length > 0).sort((a, b) => Number(b.configured) - Number(a.configured))
  const provider = offered.find((one) => one.name === chosen) ?? offered[0]
  const target = own && provider ? { provider: provider.name, model: defaultModel(provider.models) } : SANDBOX
  const choice = { origin: location.origin, key: rawKey, ...target }
  const snippets: Snippet[] = [...requestSnippets(choice), { name: 'Your own tool', ...clientSettings(choice), note: 'Base URL and key are all that a client needs. Any provider answers in the format of the client.' }]

  useShortcuts({
    c: () => {
      const snippet = snippets.find((one) => one.name === language) ?? snippets[0]
      if (!snippet) return
      void copyText(snippet.copy?.() ?? snippet.code).then((done) => {
        if (!done) return
        toast(`Copied ${snippet.name}`)
        onCopied()
      })
    },
  })

  return (
    <div className="flex min-w-0 flex-col gap-3">
      <fieldset className="flex flex-wrap items-center gap-x-5 gap-y-2">
        <legend className="sr-only">Provider</legend>
        <Radio name="target" label="With the sandbox, inside the gateway" checked={!own} onChange={() => setOwn(false)} />
        <Radio name="target" label="With my provider" checked={own} onChange={() => setOwn(true)} />
      </fieldset>
      {own && provider && (
        <div className="flex flex-wrap items-end gap-3">
          <Field label="Provider" className="w-56">
            <Select value={provider.name} onChange={(event) => setChosen(event.target.value)} options={offered.map((one) => ({ value: one.name, label: one.configured ? `${one.name} (credential stored)` : one.name }))} />
          </Field>
          <p className="max-w-[52ch] pb-1 text-xs text-muted">
            {provider.configured
              ? 'The gateway adds the credential that is stored for it.'
              : (
                  <>
                    No credential is stored for it yet: add one under <Link to="/providers" search={{ q: provider.name }} className="text-accent underline">Providers</Link>.
                  </>
                )}
          </p>
        </div>
      )}
      <Snippets label="Language" snippets={snippets} onCopied={onCopied} onChange={setLanguage} />
      <p className="text-xs text-muted">
        {rawKey === null ? 'Put your key in the place of YOUR_KEY.' : 'The key is masked on screen; Copy includes it.'} Press <kbd className="kbd">c</kbd> to copy.
      </p>
      <Guides />
    </div>
  )
}

/** Pages below `/console/docs/clients/`. */
const GUIDES: readonly [page: string, name: string][] = [
  ['cursor', 'Cursor'],
  ['claude-code', 'Claude Code'],
  ['open-webui', 'Open WebUI'],
  ['langchain', 'LangChain'],
  ['vercel-ai-sdk', 'Vercel AI SDK'],
  ['typescript', 'TypeScript'],
  ['python', 'Python'],
  ['curl', 'curl'],
]

function Guides() {
  return (
    <p className="flex flex-wrap items-center gap-x-3 text-xs text-muted">
      Guides:
      {GUIDES.map(([page, name]) => (
        <a key={page} href={`/console/docs/clients/${page}`} target="_blank" rel="noopener" className="inline-flex min-h-6 items-center text-accent underline">
          {name}
        </a>
      ))}
    </p>
  )
}
