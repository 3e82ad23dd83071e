import { useRef, useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { parseHeaders } from '@/lib/headers'
import { useAction } from '@/lib/useAction'
import { Checkbox, Field, FormDialog, Input, SecretInput, Select, TextArea, toast, toastWarning } from '@/ui'
import { QueryBox } from '../../observe/query/QueryBox'

const SOURCES: { name: Schemas['ExportSource']; about: string }[] = [
  { name: 'proxy', about: 'proxied requests' },
  { name: 'api', about: 'calls of the playground and of evals' },
  { name: 'otel', about: 'spans received over OTLP' },
  { name: 'mcp', about: 'calls through MCP' },
  { name: 'replay', about: 'requests of replays' },
  { name: 'audit', about: 'signed checkpoints of the audit log' },
]

/** Creates or edits an export. Headers and the secret are write-only. */
export function ExportForm({ config, onClose }: { config: Schemas['ExportConfig'] | null; onClose: () => void }) {
  const [name, setName] = useState(config?.name ?? '')
  const [kind, setKind] = useState(config?.kind ?? 'otlp')
  const [endpoint, setEndpoint] = useState(config?.endpoint ?? '')
  const [headers, setHeaders] = useState('')
  const [secret, setSecret] = useState('')
  const [sources, setSources] = useState<Schemas['ExportSource'][]>(config?.include_sources ?? ['proxy', 'api'])
  const [query, setQuery] = useState(config?.query ?? '')
  const box = useRef<HTMLInputElement>(null)
  const save = useAction(async () => {
    const body = {
      name: name.trim(),
      kind,
      endpoint: endpoint.trim(),
      include_sources: sources,
      // An unchanged query is not checked again: it may have words from when bodies were stored.
      ...(query !== (config?.query ?? '') && { query }),
      ...(headers.trim() !== '' && { headers: parseHeaders(headers) }),
      ...(kind === 'webhook' && secret !== '' && { secret }),
    }
    const saved = config ? await unwrap(client.PUT('/api/v1/exports/{exportId}', { params: { path: { exportId: config.id } }, body })) : await unwrap(client.POST('/api/v1/exports', { body }))
    await invalidate('/api/v1/exports')
    if (saved.secrets_dropped) toastWarning(`${body.name} has a new origin, so its stored headers and signing secret were dropped. Enter them again.`)
    else toast(config ? `${body.name} saved` : `Export "${body.name}" is active`)
    onClose()
  })
  return (
    <FormDialog
      onClose={onClose}
      title={config ? `Edit ${config.name}` : 'Add export'}
      action={save}
      submit={config ? 'Save export' : 'Add export'}
      blocked={sources.length === 0 && 'Choose at least one source'}
      fields={['name', 'endpoint', 'secret', 'headers', 'query']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Name" error={save.fields['name']}>
          <Input required autoFocus value={name} placeholder="Traces to Tempo" onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="Kind">
          <Select
            value={kind}
            onChange={(event) => setKind(event.target.value)}
            options={[
              { value: 'otlp', label: 'OTLP traces over HTTP' },
              { value: 'webhook', label: 'Signed batches of JSON' },
            ]}
          />
        </Field>
      </div>
      <Field label="Endpoint" hint={kind === 'otlp' ? 'Without a path, /v1/traces is appended.' : 'Batches are posted to this address.'} error={save.fields['endpoint']}>
        <Input mono type="url" required value={endpoint} placeholder={kind === 'otlp' ? 'https://otel.example.com' : 'https://example.com/rows'} onChange={(event) => setEndpoint(event.target.value)} />
      </Field>
      <fieldset className="flex flex-col gap-1.5">
        <legend className="mb-1 text-sm font-medium">Sends</legend>
        {SOURCES.map((source) => (
          <Checkbox
            key={source.name}
            checked={sources.includes(source.name)}
            onChange={(event) => setSources(event.target.checked ? [...sources, source.name] : sources.filter((one) => one !== source.name))}
            label={<code>{source.name}</code>}
            hint={source.about}
          />
        ))}
      </fieldset>
      <div className="flex flex-col gap-1">
        <p className="text-sm font-medium">Only rows that match</p>
        <QueryBox value={query} onChange={setQuery} error={save.fields['query'] === undefined ? null : save.error} inputRef={box} placeholder="All rows. Filter: status:error metadata.env:prod" />
        <p className="text-xs text-muted">{config ? 'A change also applies to rows that are waiting.' : 'Other rows are skipped.'}</p>
      </div>
      {kind === 'webhook' && (
        <Field label="Signing secret" hint={config?.has_secret ? 'Set. Leave empty to keep it. A new host, port or scheme needs it again.' : 'Optional; whsec_ and base64, or any text.'} error={save.fields['secret']}>
          <SecretInput mono autoComplete="off" value={secret} placeholder={config?.has_secret ? 'set; type to replace' : ''} onChange={(event) => setSecret(event.target.value)} />
        </Field>
      )}
      <Field label="Headers" hint={`One per line, Name: value. ${config ? 'Never shown again; what you write here replaces all of them.' : 'Sent with every delivery, and never shown again.'}`} error={save.fields['headers']}>
        <TextArea mono rows={2} value={headers} placeholder="Authorization: Bearer …" onChange={(event) => setHeaders(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
