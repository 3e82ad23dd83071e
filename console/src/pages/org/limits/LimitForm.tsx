import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { UNITS, limitNotes, parseShare, unitName, type Unit } from '@/lib/limits'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, Switch, toast } from '@/ui'
import type { LimitNames } from './useLimitNames'

type Limit = Schemas['Limit']
type Scope = Schemas['LimitScope']

const SCOPES: { value: Scope; label: string }[] = [
  { value: 'org', label: 'The organization' },
  { value: 'team', label: 'A team' },
  { value: 'app', label: 'An application' },
  { value: 'key', label: 'A key' },
  { value: 'model', label: 'A model' },
]
const PERS = [
  { value: 'none', label: 'All together' },
  { value: 'key', label: 'Each key' },
  { value: 'user', label: 'Each user' },
  { value: 'subject', label: 'Each member' },
  { value: 'session', label: 'Each session' },
  { value: 'metadata', label: 'Each value of metadata' },
]
const WINDOWS: Schemas['LimitWindow'][] = ['minute', 'hour', 'day']

/** What a new limit is about, as a link says it. */
export interface NewLimit {
  /** An end user; limits count each user apart. */
  user?: string | undefined
  /** Id of a key. */
  key?: string | undefined
  model?: string | undefined
}

interface LimitFormProps {
  /** Null for a new limit. */
  limit: Limit | null
  initial?: NewLimit | undefined
  names: LimitNames
  onClose: () => void
}

export function LimitForm({ limit, initial = {}, names, onClose }: LimitFormProps) {
  const { orgId } = useMe()
  const [name, setName] = useState(limit?.name ?? '')
  const [scope, setScope] = useState<Scope>(limit?.scope ?? (initial.key === undefined ? 'org' : 'key'))
  const [scopeId, setScopeId] = useState(limit?.scope_id ?? initial.key ?? '')
  const [per, setPer] = useState(limit?.per.startsWith('metadata.') ? 'metadata' : (limit?.per ?? (initial.user === undefined ? 'none' : 'user')))
  const [field, setField] = useState(limit?.per.startsWith('metadata.') ? limit.per.slice(9) : '')
  const [amounts, setAmounts] = useState<Record<Unit, string>>(() => Object.fromEntries(UNITS.map((unit) => [unit, limit?.[unit]?.toString() ?? ''])) as Record<Unit, string>)
  const [window, setWindow] = useState<Schemas['LimitWindow']>(limit?.window ?? 'minute')
  const [models, setModels] = useState(limit?.models?.join(', ') ?? initial.model ?? '')
  const reserved = Object.entries(limit?.reserve ?? {})
  const [className, setClassName] = useState(reserved[0]?.[0] ?? '')
  const [share, setShare] = useState(reserved[0] ? String(reserved[0][1] * 100) : '')
  const [missing, setMissing] = useState<Schemas['LimitMissing']>(limit?.missing ?? 'shared')
  const [dryRun, setDryRun] = useState(limit?.mode === 'dry_run')
  const [enabled, setEnabled] = useState(limit?.enabled ?? true)

  const listed = names.choices(scope)
  // A key of a link may be beyond the listed ones.
  const linked = scope === 'key' && initial.key !== undefined && !listed.some((choice) => choice.value === initial.key) ? [{ value: initial.key, label: initial.key }] : []
  const choices = [...linked, ...listed]
  const chosen = scope === 'model' ? scopeId.trim() : choices.some((choice) => choice.value === scopeId) ? scopeId : (choices[0]?.value ?? '')
  const patterns = models.split(',').flatMap((pattern) => pattern.trim() || [])
  const shareOfClass = parseShare(share)
  // Further classes, which only the API can set, stay as they are.
  const others = Object.fromEntries(reserved.slice(1).filter(([other]) => other !== className))
  const body = {
    name: name.trim(),
    scope,
    ...(scope !== 'org' && { scope_id: chosen }),
    ...(patterns.length > 0 && { models: patterns }),
    per: per === 'metadata' ? `metadata.${field.trim()}` : per,
    ...Object.fromEntries(UNITS.flatMap((unit) => (amounts[unit] === '' ? [] : [[unit, Number(amounts[unit])]]))),
    window,
    reserve: className.trim() && shareOfClass !== null ? { [className.trim()]: shareOfClass, ...others } : others,
    count_cached: limit?.count_cached ?? true,
    missing,
    mode: dryRun ? ('dry_run' as const) : ('enforce' as const),
    enabled,
  }
  const save = useAction(async () => {
    if (limit) await unwrap(client.PUT('/api/v1/orgs/{orgId}/limits/{limitId}', { params: { path: { orgId, limitId: limit.id } }, body }))
    else await unwrap(client.POST('/api/v1/orgs/{orgId}/limits', { params: { path: { orgId } }, body }))
    await invalidate('/api/v1/orgs')
    toast(limit ? `Limit ${body.name} saved` : `Limit ${body.name} active`)
    onClose()
  })
  const problem =
    scope !== 'model' && choices.length === 0 ? `There is no ${scope} yet`
    : UNITS.every((unit) => amounts[unit] === '') ? 'Set at least one number'
    : per === 'metadata' && field.trim() === '' ? 'Enter the metadata field'
    : (className.trim() === '') !== (share === '') || (share !== '' && shareOfClass === null) ? 'A reserved share needs a class and a percentage'
    : false
  return (
    <FormDialog
      onClose={onClose}
      size="lg"
      title={limit ? `Edit ${limit.name}` : 'Set limit'}
      action={save}
      submit={limit ? 'Save limit' : 'Set limit'}
      blocked={problem}
      fields={['name', 'scope', 'scope_id', 'models', 'per', 'window', 'reserve', 'missing', ...UNITS]}
    >
      <div className="grid gap-3 sm:grid-cols-3">
        <Field label="Name" hint="Shown in response headers and errors." error={save.fields['name']}>
          <Input required autoFocus pattern="[a-z0-9\-]{1,40}" title="Lowercase letters, digits and dashes, at most 40" value={name} placeholder="team-tokens" onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="For" error={save.fields['scope']}>
          <Select value={scope} onChange={(event) => setScope(event.target.value as Scope)} options={SCOPES} />
        </Field>
        <Field label="Which" error={save.fields['scope_id']}>
          {scope === 'model' ? (
            <Input required value={scopeId} placeholder="gpt-4o" onChange={(event) => setScopeId(event.target.value)} />
          ) : (
            <Select value={chosen} disabled={scope === 'org'} onChange={(event) => setScopeId(event.target.value)} options={choices} />
          )}
        </Field>
        <Field label="Shared by" error={save.fields['per']}>
          <Select value={per} onChange={(event) => setPer(event.target.value)} options={PERS} />
        </Field>
        {per === 'metadata' && (
          <Field label="Metadata field">
            <Input value={field} maxLength={64} placeholder="tenant" onChange={(event) => setField(event.target.value)} />
          </Field>
        )}
        {!['none', 'key'].includes(per) && (
          <Field label="Calls without it" error={save.fields['missing']}>
            <Select value={missing} onChange={(event) => setMissing(event.target.value as Schemas['LimitMissing'])} options={[{ value: 'shared', label: 'Share one allowance' }, { value: 'refuse', label: 'Are refused' }]} />
          </Field>
        )}
      </div>
      <fieldset className="grid grid-cols-2 gap-3 sm:grid-cols-3">
        <legend className="sr-only">Numbers</legend>
        {UNITS.map((unit) => (
          <Field key={unit} label={unit === 'concurrent' ? 'Calls at the same time' : capital(unitName(unit))} error={save.fields[unit]}>
            <Input type="number" min={1} step={1} value={amounts[unit]} placeholder="any" onChange={(event) => setAmounts({ ...amounts, [unit]: event.target.value })} />
          </Field>
        ))}
        <Field label="In each" error={save.fields['window']}>
          <Select value={window} onChange={(event) => setWindow(event.target.value as Schemas['LimitWindow'])} options={WINDOWS} />
        </Field>
      </fieldset>
      <div className="grid gap-3 sm:grid-cols-3">
        <Field label="Models" hint="Names or patterns such as gpt-4o*, separated by commas. Together they share the limit." error={save.fields['models']}>
          <Input value={models} placeholder="every model" onChange={(event) => setModels(event.target.value)} />
        </Field>
        <Field label="Class with a reserved share" hint="Keys may have a class." error={save.fields['reserve']}>
          <Input value={className} placeholder="none" onChange={(event) => setClassName(event.target.value)} />
        </Field>
        <Field label="Its share, %">
          <Input type="number" min={1} max={99.9} step="any" value={share} placeholder="none" onChange={(event) => setShare(event.target.value)} />
        </Field>
      </div>
      <div className="grid gap-3 sm:grid-cols-2">
        <Switch label="Dry run" hint="Counts requests and records what it would refuse." checked={dryRun} onChange={(event) => setDryRun(event.target.checked)} />
        <Switch label="Enabled" checked={enabled} onChange={(event) => setEnabled(event.target.checked)} />
      </div>
      <p className="rounded-md bg-sunken p-2 text-sm" role="status" aria-label="What it means">
        {initial.user !== undefined && `Opened for the user ${initial.user}: a limit for users counts each of them separately. `}
        {typeof problem === 'string' ? problem : [`${capital(names.sentence(body))}.`, ...limitNotes(body)].join(' ')}
      </p>
    </FormDialog>
  )
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1)
