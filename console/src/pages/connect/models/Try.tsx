import { Link } from '@tanstack/react-router'
import { Play } from 'lucide-react'
import { useState, type ReactNode } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { asApiError, isRecord, type ApiError } from '@/api/error'
import { invalidate } from '@/api/query'
import { compact, duration, money, NO_VALUE } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ErrorLine, Field, HttpStatus, Input, Section, Table, TextArea, type Column } from '@/ui'
import type { Model } from './draft'

type LogRow = Schemas['LogRow']
type Attempt = LogRow['attempts'][number]

interface Result {
  run: Schemas['PlaygroundRun'] | null
  error: ApiError | null
  /** Null if the row is not there in time, or may not be read. */
  log: LogRow | null
  logId: number | null
}

/** How long to wait for a log row, which is written after the response. */
const LOG_DEADLINE_MS = 5_000
const LOG_POLL_MS = 200
const LOG_PAGE = 200

/** Sends one request through the model, and shows which target answered. */
export function Try({ model, isDraft }: { model: Model; isDraft: boolean }) {
  const isPattern = model.name.endsWith('*')
  const [name, setName] = useState(model.name)
  const [message, setMessage] = useState('Hello!')
  const [params, setParams] = useState('')
  const [result, setResult] = useState<Result | null>(null)
  const parsed = parseParams(params)
  const send = useAction(async () => {
    setResult(null)
    const body = { provider: 'auto', model: name.trim(), messages: [{ role: 'user', content: message }], params: parsed ?? {} }
    try {
      const run = (await unwrap(client.POST('/api/v1/playground/run', { body }))) as Schemas['PlaygroundRun']
      setResult({ run, error: null, logId: run.log_id, log: await findLog(run.log_id) })
    } catch (failure) {
      const error = asApiError(failure)
      if (error.logId === null) throw error
      setResult({ run: null, error, logId: error.logId, log: await findLog(error.logId) })
    }
    await invalidate('/api/v1/usage/breakdown')
  })
  const blocked = !model.enabled ? 'The model is disabled' : name.trim() === '' || name.trim().endsWith('*') ? 'Enter a name that matches the pattern' : message === '' ? 'Write a message first' : parsed === null && 'The parameters must be a JSON object'
  return (
    <div className="flex flex-col gap-4">
      <Section>
        <form
          className="flex flex-col gap-3"
          onSubmit={(event) => {
            event.preventDefault()
            if (!blocked) send.run()
          }}
        >
          {isPattern && (
            <Field label="Name to call" hint="A model name that matches the pattern." className="max-w-md">
              <Input mono value={name} onChange={(event) => setName(event.target.value)} />
            </Field>
          )}
          <Field label="Message">
            <TextArea rows={3} value={message} onChange={(event) => setMessage(event.target.value)} />
          </Field>
          <Field label="Parameters" hint="JSON, such as a temperature that a condition tests. Metadata and headers cannot be set here.">
            <Input mono value={params} placeholder='{"temperature": 0.5}' onChange={(event) => setParams(event.target.value)} />
          </Field>
          <div className="flex flex-wrap items-center gap-3">
            <Button kind="primary" type="submit" needs="member" busy={send.busy} blocked={blocked} icon={<Play size={14} aria-hidden />}>
              Send
            </Button>
            <span className="text-xs text-muted">A real request to the provider, with its cost. {isDraft && `It uses the saved version ${model.version}, not your changes.`}</span>
          </div>
        </form>
      </Section>
      <ErrorLine error={send.error} />
      <div role="status">{result && <Outcome model={model} result={result} />}</div>
    </div>
  )
}

async function findLog(logId: number | null): Promise<LogRow | null> {
  const end = Date.now() + LOG_DEADLINE_MS
  while (logId !== null && Date.now() < end) {
    try {
      // Until the row is there, a list lacks it, whereas the row itself would be an error.
      const { logs } = await unwrap(client.GET('/api/v1/logs', { params: { query: { after_id: logId - 1, limit: LOG_PAGE } } }))
      const found = logs.find((row) => row.id === logId)
      if (found) return found
      if (logs.length === LOG_PAGE) return await unwrap(client.GET('/api/v1/logs/{logId}', { params: { path: { logId } } }))
    } catch (failure) {
      if (asApiError(failure).status !== 404) return null
    }
    await new Promise((done) => setTimeout(done, LOG_POLL_MS))
  }
  return null
}

function Outcome({ model, result }: { model: Model; result: Result }) {
  const { run, error, log, logId } = result
  const served = log ? `${log.provider}/${log.model ?? ''}` : NO_VALUE
  const facts: [string, ReactNode][] = [
    [run ? 'Answered by' : 'Tried last', <code key="target">{served}</code>],
    ['Target', log ? (targetId(model, log.provider, log.model) ?? NO_VALUE) : NO_VALUE],
    ['Status', log ? <HttpStatus key="status" status={log.status} code={log.error_code} /> : NO_VALUE],
    ['Latency', duration(run?.latency_ms ?? log?.latency_ms)],
    ['Cost', run && run.cost_usd === null ? 'no price' : money(run?.cost_usd ?? log?.cost_usd)],
    ['Tokens', run?.usage ? `${compact(run.usage.prompt_tokens)} in, ${compact(run.usage.completion_tokens)} out` : NO_VALUE],
  ]
  return (
    <Section title={run ? 'Answer' : 'Failed'} aside={log?.cache === 'hit' && <Badge tone="accent">from the cache</Badge>}>
      <div className="flex flex-col gap-3">
        <dl className="grid grid-cols-2 gap-x-4 gap-y-2 sm:grid-cols-3" aria-label="Result">
          {facts.map(([name, value]) => (
            <div key={name} className="min-w-0">
              <dt className="text-xs text-muted">{name}</dt>
              <dd className="break-words tabular-nums">{value}</dd>
            </div>
          ))}
        </dl>
        {error && <ErrorLine error={error} />}
        {run && <p className="rounded-sm bg-sunken px-3 py-2 break-words whitespace-pre-wrap">{run.output || <span className="text-muted">The model answered without a text.</span>}</p>}
        {log && log.attempts.length > 0 && <Table label="Attempts" columns={COLUMNS} rows={log.attempts.map((attempt, index) => ({ ...attempt, number: index + 1 }))} rowKey={(attempt) => attempt.number} />}
        {logId !== null && (
          <p className="flex gap-4 text-xs">
            <Link to="/logs" search={{ log: logId }} className="text-accent underline">
              Open the log
            </Link>
          </p>
        )}
      </div>
    </Section>
  )
}

const COLUMNS: readonly Column<Attempt & { number: number }>[] = [
  { key: 'number', header: 'Attempt', cell: (attempt) => attempt.number },
  { key: 'target', header: 'Target', cell: (attempt) => <code className="whitespace-nowrap">{attempt.model ? `${attempt.provider}/${attempt.model}` : attempt.provider}</code> },
  { key: 'status', header: 'Status', cell: (attempt) => (attempt.status === null ? <span className="whitespace-nowrap text-err">no answer</span> : <HttpStatus status={attempt.status} />) },
  { key: 'error', header: 'Error', from: 'sm', className: 'max-w-80 break-words text-muted', cell: (attempt) => attempt.error ?? '' },
  { key: 'latency', header: 'Took', number: true, cell: (attempt) => duration(attempt.latency_ms) },
]

/** The id of the target with this provider and model. */
function targetId(model: Model, provider: string, served: string | null): string | null {
  const all = model.targets.flatMap((target) => target.targets ?? [target])
  const exact = all.find((target) => target.provider === provider && target.model === served)
  return (exact ?? all.find((target) => target.provider === provider && target.model?.endsWith('*')))?.id ?? null
}

function parseParams(text: string): Record<string, unknown> | null {
  if (text.trim() === '') return {}
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}
