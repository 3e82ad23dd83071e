import { useEffect, useState } from 'react'
import { client, take } from '@/api/client'
import { asApiError, type ApiError } from '@/api/error'
import { renderHere } from '@/lib/template'
import { Badge, CopyButton, ErrorLine, Field, Section, TextArea } from '@/ui'

interface PreviewProps {
  namespace: string
  slug: string
  /** The stored version that is shown, or null for a draft. */
  version: number | null
  content: string
  variables: readonly string[]
  values: Readonly<Record<string, string>>
  onValues(values: Record<string, string>): void
}

/** The variables as a form, and the text that a model would be sent. */
export function Preview({ namespace, slug, version, content, variables, values, onValues }: PreviewProps) {
  const missing = variables.filter((name) => values[name] === undefined)
  const { rendered, error } = useRendered(namespace, slug, missing.length === 0 ? version : null, content, values)
  return (
    <Section title="Preview" aside={version === null ? <Badge tone="warn" title="Put together in this page; what is saved is rendered by the gateway">draft</Badge> : <Badge>v{version}</Badge>}>
      <div className="flex flex-col gap-3">
        {variables.length === 0 && <p className="text-muted">This text has no variables.</p>}
        {variables.map((name) => (
          <Field key={name} label={<code>{name}</code>}>
            <TextArea rows={1} className="!min-h-[30px]" value={values[name] ?? ''} onChange={(event) => onValues({ ...values, [name]: event.target.value })} />
          </Field>
        ))}
        {missing.length > 0 ? (
          <p className="text-xs text-muted" role="status">
            Fill in {missing.join(', ')} to see the whole text.
          </p>
        ) : (
          <ErrorLine error={error} />
        )}
        <div className="relative">
          <pre className="max-h-80 min-h-16 overflow-auto rounded-md border border-line bg-sunken p-3 pr-10 break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label="Rendered text" aria-live="polite">
            {rendered}
          </pre>
          <div className="absolute top-1.5 right-1.5">
            <CopyButton value={rendered} label="Copy the rendered text" />
          </div>
        </div>
      </div>
    </Section>
  )
}

/** What the gateway makes of a stored version, a moment after the last change; of a draft, or while values are missing, what this page makes of it. */
function useRendered(namespace: string, slug: string, version: number | null, content: string, values: Readonly<Record<string, string>>): { rendered: string; error: ApiError | null } {
  const [answer, setAnswer] = useState<{ rendered: string | null; error: ApiError | null }>({ rendered: null, error: null })
  const asked = JSON.stringify(values)
  useEffect(() => {
    setAnswer((before) => ({ ...before, error: null }))
    if (version === null) return
    const stop = new AbortController()
    const timer = setTimeout(() => {
      take(client.POST('/api/v1/prompts/{namespace}/{slug}/render', { params: { path: { namespace, slug }, query: { version } }, body: { variables: JSON.parse(asked) as Record<string, string> }, signal: stop.signal }))
        .then(({ rendered }) => setAnswer({ rendered, error: null }))
        .catch((failure: unknown) => stop.signal.aborted || setAnswer({ rendered: null, error: asApiError(failure) }))
    }, 250)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [namespace, slug, version, asked])
  if (version === null) return { rendered: renderHere(content, filled(values)), error: null }
  return { rendered: answer.rendered ?? renderHere(content, filled(values)), error: answer.error }
}

function filled(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''))
}
