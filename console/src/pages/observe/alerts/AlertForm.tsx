import { useMemo, useRef, useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { ApiError } from '@/api/error'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { conditionText, measureName, measureOf, MEASURES, measureText, parseThreshold, thresholdInput, windowText, type Measure } from '@/lib/alerts'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, Switch, toast } from '@/ui'
import { QueryBox } from '../query/QueryBox'

const WINDOWS = [1, 5, 10, 15, 30, 60, 240, 720, 1440]
const DEFAULTS: Record<Measure, string> = { error_rate: '10', errors: '10', requests: '1000', p95_ms: '5000', cost_usd: '10' }

interface AlertFormProps {
  /** Null to create one. */
  alert: Schemas['Alert'] | null
  query: string
  onClose: () => void
}

export function AlertForm({ alert, query: initialQuery, onClose }: AlertFormProps) {
  const { orgId } = useMe()
  const [name, setName] = useState(alert?.name ?? '')
  const [query, setQuery] = useState(initialQuery)
  const [measure, setMeasure] = useState<Measure>(alert?.measure ?? 'error_rate')
  const [threshold, setThreshold] = useState(alert ? thresholdInput(alert.measure, alert.above) : DEFAULTS.error_rate)
  const [minutes, setMinutes] = useState(alert?.window_minutes ?? 5)
  const [least, setLeast] = useState(String(alert?.min_requests ?? 1))
  const [enabled, setEnabled] = useState(alert?.enabled ?? true)
  const box = useRef<HTMLInputElement>(null)
  const above = parseThreshold(measure, threshold)
  const unit = MEASURES.find((one) => one.value === measure)?.unit

  const save = useAction(async () => {
    const body = { name: name.trim(), query, measure, above: above ?? 0, window_minutes: minutes, min_requests: Math.max(1, Number(least) || 1), enabled }
    if (alert) await unwrap(client.PUT('/api/v1/orgs/{orgId}/alerts/{alertId}', { params: { path: { orgId, alertId: alert.id } }, body }))
    else await unwrap(client.POST('/api/v1/orgs/{orgId}/alerts', { params: { path: { orgId } }, body }))
    await invalidate('/api/v1/orgs/{orgId}/alerts')
    toast(alert ? `Alert ${body.name} saved` : `Alert ${body.name} created`)
    onClose()
  })
  const preview = usePreview(query, minutes)
  const previewError = preview.error instanceof ApiError && preview.error.fields['query'] !== undefined ? preview.error : null
  const queryError = save.error?.fields['query'] !== undefined ? save.error : previewError
  const chooseMeasure = (next: Measure) => {
    setMeasure(next)
    setThreshold(DEFAULTS[next])
  }
  return (
    <FormDialog
      onClose={onClose}
      size="lg"
      title={alert ? `Edit ${alert.name}` : 'Create alert'}
      action={save}
      submit={alert ? 'Save alert' : 'Create alert'}
      blocked={name.trim() === '' ? 'Enter a name' : above === null ? 'Enter a threshold' : previewError !== null && 'Correct the query first'}
      fields={['name', 'query', 'above', 'window_minutes', 'min_requests']}
    >
      <Field label="Name" error={save.fields['name']}>
        <Input required autoFocus maxLength={80} value={name} placeholder="Failures of gpt-4o" onChange={(event) => setName(event.target.value)} />
      </Field>
      <div className="flex flex-col gap-1">
        <p className="text-sm font-medium">Requests that count</p>
        <QueryBox value={query} onChange={setQuery} error={queryError} inputRef={box} placeholder="All requests. Filter: model:gpt-4o* -source:api" />
      </div>
      <div className="grid gap-3 sm:grid-cols-4">
        <Field label="Measure">
          <Select value={measure} onChange={(event) => chooseMeasure(event.target.value as Measure)} options={MEASURES.map(({ value, label }) => ({ value, label }))} />
        </Field>
        <Field label={`Above (${unit})`} error={save.fields['above']}>
          <Input type="number" min={0} step="any" required value={threshold} onChange={(event) => setThreshold(event.target.value)} />
        </Field>
        <Field label="Over the last" error={save.fields['window_minutes']}>
          <Select value={String(minutes)} onChange={(event) => setMinutes(Number(event.target.value))} options={[...new Set([...WINDOWS, minutes])].sort((a, b) => a - b).map((one) => ({ value: String(one), label: windowText(one) }))} />
        </Field>
        <Field label="At least (requests)" hint="The alert does not fire with fewer requests." error={save.fields['min_requests']}>
          <Input type="number" min={1} step={1} value={least} onChange={(event) => setLeast(event.target.value)} />
        </Field>
      </div>
      <Switch label="Enabled" checked={enabled} onChange={(event) => setEnabled(event.target.checked)} />
      <p className="rounded-md bg-sunken p-2 text-sm" role="status" aria-label="What it means">
        {above === null ? 'Enter a threshold.' : `Fires on: ${conditionText({ measure, above, window_minutes: minutes })}.`} {preview.data && above !== null && nowText(measure, above, Number(least) || 1, minutes, preview.data)}
      </p>
    </FormDialog>
  )
}

/** The same sums as a check of the alert would find. */
function usePreview(query: string, minutes: number) {
  const from = useMemo(() => new Date(Date.now() - minutes * 60_000).toISOString(), [minutes, query])
  // A query makes the API read the rows themselves; without one its sums begin at full hours.
  return api.useQuery('get', '/api/v1/usage/summary', { params: { query: { query: query || 'latency:>=0', from } } }, { retry: false, staleTime: 10_000, meta: { quiet: true } })
}

function nowText(measure: Measure, above: number, least: number, minutes: number, rows: Schemas['Summary']): string {
  const value = measureOf(measure, rows)
  if (rows.requests === 0) return `No requests match in the last ${windowText(minutes)}.`
  const fires = value !== null && value > above && rows.requests >= least
  return `Now: ${measureName(measure).toLowerCase()} ${measureText(measure, value)} in ${plural(rows.requests, 'request')}; it would ${fires ? 'fire' : 'not fire'}.`
}
