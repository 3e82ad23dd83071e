import { useEffect, useState } from 'react'
import { client, unwrap } from '@/api/client'
import { asApiError, type ApiError } from '@/api/error'
import { renderPreview } from '@/lib/template'
import { Badge, CopyButton, ErrorLine, Field, Section, TextArea } from '@/ui'

interface PreviewProps {
  namespace: string
  slug: string
  /** The displayed stored version, or null for a draft. */
  version: number | null
  content: string
  variables: readonly string[]
  values: Readonly<Record<string, string>>
  onValues(values: Record<string, string>): void
}

/** Variable form and rendered preview of a prompt. */
export function Preview({ namespace, slug, version, content, variables, values, onValues }: PreviewProps) {
  const missing = variables.filter((name) => values[name] === undefined)
  const { rendered, error } = useRendered(namespace, slug, missing.length === 0 ? version : null, content, values)
  return (
    <Section title="Preview" aside={version === null ? <Badge tone="warn" title="Rendered in this page; saved versions are rendered by the gateway">draft</Badge> : <Badge>v{version}</Badge>}>
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

/** Renders a stored version on the server (debounced); a draft, or one with missing values, is rendered locally. */
function useRendered(namespace: string, slug: string, version: number | null, content: string, values: Readonly<Record<string, string>>): { rendered: string; error: ApiError | null } {
  const [response, setResponse] = useState<{ rendered: string | null; error: ApiError | null }>({ rendered: null, error: null })
  const variablesJson = JSON.stringify(values)
  useEffect(() => {
    setResponse((before) => ({ ...before, error: null }))
    if (version === null) return
    const stop = new AbortController()
    const timer = setTimeout(() => {
      unwrap(client.POST('/api/v1/prompts/{namespace}/{slug}/render', { params: { path: { namespace, slug }, query: { version } }, body: { variables: JSON.parse(variablesJson) as Record<string, string> }, signal: stop.signal }))
        .then(({ rendered }) => setResponse({ rendered, error: null }))
        .catch((failure: unknown) => stop.signal.aborted || setResponse({ rendered: null, error: asApiError(failure) }))
    }, 250)
    return () => {
      clearTimeout(timer)
      stop.abort()
    }
  }, [namespace, slug, version, variablesJson])
  if (version === null) return { rendered: renderPreview(content, filled(values)), error: null }
  return { rendered: response.rendered ?? renderPreview(content, filled(values)), error: response.error }
}

function filled(values: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''))
}
