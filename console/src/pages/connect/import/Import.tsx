/** Imports of other gateways: choose a source, read the plan, apply it. */
import { CircleCheck, FileUp, TriangleAlert } from 'lucide-react'
import { Link } from '@tanstack/react-router'
import { useId, useRef, useState, type DragEvent, type ReactNode } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { cx } from '@/lib/cx'
import { bytes, plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, Field, Page, Radio, Section, TextArea, toast } from '@/ui'
import { DialectSnippets } from '../UseIt'
import { Findings } from './Findings'
import { Plan } from './Plan'
import { countByStatus, guessSource, MAX_BYTES, SOURCES, type Result, type Source } from './sources'

type OnConflict = NonNullable<Schemas['ImportRequest']['on_conflict']>

/** The file stays in memory until it is applied or the page is left: it may contain credentials. */
export function Import() {
  const { orgId } = useMe()
  const [source, setSource] = useState<Source>('litellm')
  const [text, setText] = useState('')
  /** Name and size of the chosen file, whose text is not shown because it may have credentials. */
  const [file, setFile] = useState<string>()
  const [onConflict, setOnConflict] = useState<OnConflict>('fail')
  const [result, setResult] = useState<Result | null>(null)
  const [confirming, setConfirming] = useState(false)
  const heading = useRef<HTMLHeadingElement>(null)
  const send = (apply: boolean, on_conflict: OnConflict) => unwrap(client.POST('/api/v1/orgs/{orgId}/import', { params: { path: { orgId } }, body: { source, data: text, apply, on_conflict } }))
  const plan = useAction(async (conflict: OnConflict) => {
    setResult(await send(false, conflict))
    heading.current?.focus()
  })
  const apply = async () => {
    setResult(await send(true, onConflict))
    setText('')
    setFile(undefined)
    await invalidate('/api/v1/orgs', '/api/v1/keys', '/api/v1/playground/providers')
    toast('Import finished')
    heading.current?.focus()
  }
  /** A plan is only valid for what it was made of. */
  const change = (next: { source?: Source; text?: string; file?: string | undefined }) => {
    if (next.source !== undefined) setSource(next.source)
    if (next.text !== undefined) setText(next.text)
    if ('file' in next) setFile(next.file)
    setResult(null)
    setOnConflict('fail')
    plan.reset()
  }
  const choose = async (chosen: File | undefined) => {
    if (!chosen) return
    const isTooLong = chosen.size > MAX_BYTES
    const content = isTooLong ? '' : await chosen.text()
    change({ text: content, file: isTooLong ? `${chosen.name} is longer than ${bytes(MAX_BYTES)}` : `${chosen.name}, ${bytes(chosen.size)}`, source: guessSource(content) ?? source })
  }
  const decide = (next: OnConflict) => {
    setOnConflict(next)
    plan.run(next)
  }
  const conflicts = result?.changes.conflicts.length ?? 0
  const writes = result ? result.changes.created.length + result.changes.replaced.length : 0
  const canApply = result !== null && !result.applied
  return (
    <Page title="Import" about="Bring providers, models and keys from another gateway. You review a plan first; nothing changes until you apply it.">
      <form
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault()
          plan.run(onConflict)
        }}
      >
        <div className="grid items-start gap-4 lg:grid-cols-2">
          <SourceChoice value={source} onChange={(next) => change({ source: next })} />
          <Section title="File">
            <div className="flex flex-col gap-3">
              <FileField name={file} accept={SOURCES[source].accept} onChoose={(chosen) => void choose(chosen)} />
              {file === undefined ? (
                <Field label="Or paste its text" error={plan.fields['data']}>
                  <TextArea mono rows={7} value={text} placeholder={SOURCES[source].placeholder} onChange={(event) => change({ text: event.target.value })} />
                </Field>
              ) : (
                <div className="flex flex-wrap items-center gap-3">
                  <Button size="sm" onClick={() => change({ text: '', file: undefined })}>
                    Remove the file
                  </Button>
                  {plan.fields['data'] && (
                    <p role="alert" className="text-xs text-err">
                      {plan.fields['data']}
                    </p>
                  )}
                </div>
              )}
              <p className="text-xs text-muted">Credentials in the file are encrypted and never shown. References such as os.environ/NAME are not resolved; the plan lists the credentials to add by hand.</p>
            </div>
          </Section>
        </div>
        {Object.keys(plan.fields).length === 0 && <ErrorLine error={plan.error} />}
        <div>
          <Button kind={result ? 'plain' : 'primary'} type="submit" needs="admin" busy={plan.busy} blocked={text.trim() === '' && 'Choose a file or paste its text first'}>
            Review plan
          </Button>
        </div>
      </form>
      {result && (
        <section className="flex flex-col gap-4" aria-labelledby="import-result">
          <h2 id="import-result" ref={heading} tabIndex={-1} className="text-lg">
            {result.applied ? 'Imported' : 'The plan'}
          </h2>
          <Summary result={result} />
          {!result.applied && (conflicts > 0 || onConflict !== 'fail') && <Conflicts count={conflicts} value={onConflict} busy={plan.busy} onChange={decide} />}
          {result.applied && <NextSteps result={result} source={source} />}
          <Plan result={result} />
          <Findings key={String(result.applied)} findings={result.findings} />
          {canApply && (
            <div className="sticky bottom-0 flex flex-wrap items-center justify-end gap-3 border-t border-line bg-bg py-3">
              <span className="text-muted">{conflicts > 0 ? 'Resolve the conflicts first' : writes === 0 ? 'There is nothing to import' : `${plural(writes, 'change')} in one transaction`}</span>
              <Button kind="primary" needs="admin" blocked={conflicts > 0 ? 'Resolve the conflicts first' : writes === 0 && 'There is nothing to import'} onClick={() => setConfirming(true)}>
                Apply…
              </Button>
            </div>
          )}
        </section>
      )}
      <ConfirmDialog open={confirming} onClose={() => setConfirming(false)} title={`Import ${plural(writes, 'change')}?`} action="Apply" onConfirm={apply}>
        {result && <Consequences result={result} />}
      </ConfirmDialog>
    </Page>
  )
}

function SourceChoice({ value, onChange }: { value: Source; onChange(source: Source): void }) {
  const name = useId()
  return (
    <Section title="Source">
      <fieldset className="flex flex-col gap-2.5">
        <legend className="sr-only">Source</legend>
        {Object.entries(SOURCES).map(([source, { name: label, about }]) => (
          <Radio key={source} name={name} label={label} hint={about} checked={value === source} onChange={() => onChange(source as Source)} />
        ))}
      </fieldset>
    </Section>
  )
}

function FileField({ name, accept, onChoose }: { name: string | undefined; accept: string; onChoose(chosen: File | undefined): void }) {
  const [over, setOver] = useState(false)
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    onChoose(event.dataTransfer.files[0])
  }
  return (
    <label
      className={cx('flex cursor-pointer flex-col items-center gap-1 rounded-md border border-dashed px-4 py-5 text-center focus-within:outline-2 focus-within:outline-accent', over ? 'border-accent bg-accent-soft' : 'border-line-strong')}
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <FileUp size={20} className="text-muted" aria-hidden />
      <span className="break-all">{name ?? 'Drop a file here, or choose one'}</span>
      <input
        type="file"
        className="sr-only"
        aria-label="File"
        accept={accept}
        onChange={(event) => {
          onChoose(event.target.files?.[0])
          // The same file can be chosen again after it was changed.
          event.target.value = ''
        }}
      />
    </label>
  )
}

function Summary({ result }: { result: Result }) {
  const counts = countByStatus(result.findings)
  const open = counts.manual + counts.unsupported
  const parts = [
    counts.exact > 0 && `${plural(counts.exact, 'field means', 'fields mean')} the same here`,
    counts.approximate > 0 && `${plural(counts.approximate, 'field differs', 'fields differ')} in details`,
    counts.manual > 0 && `${plural(counts.manual, 'field needs', 'fields need')} to be set up by hand`,
    counts.unsupported > 0 && `${plural(counts.unsupported, 'field has', 'fields have')} no counterpart`,
  ].filter(Boolean)
  const Icon = open > 0 ? TriangleAlert : CircleCheck
  return (
    <p className={cx('card flex items-start gap-2 px-3 py-2', open > 0 ? 'bg-warn-soft' : 'bg-ok-soft')} role="status">
      <Icon size={16} className={cx('mt-0.5 shrink-0', open > 0 ? 'text-warn' : 'text-ok')} aria-hidden />
      <span>
        {parts.length > 0 ? `${parts.join(', ')}.` : 'The file has no fields.'}
      </span>
    </p>
  )
}

interface ConflictsProps {
  count: number
  value: OnConflict
  busy: boolean
  onChange(value: OnConflict): void
}

function Conflicts({ count, value, busy, onChange }: ConflictsProps) {
  const name = useId()
  const choices: [OnConflict, string, string][] = [
    ['fail', 'Import nothing', 'The import is refused as long as there are conflicts.'],
    ['skip', 'Keep what is here', 'Only what is new is imported.'],
    ['replace', 'Replace it', 'Models get a new version; the old one can be restored.'],
  ]
  return (
    <Section title={count > 0 ? `${plural(count, 'name exists', 'names exist')} with other content` : 'Names that exist with other content'}>
      <fieldset className="flex flex-col gap-2" disabled={busy}>
        <legend className="sr-only">What to do about conflicts</legend>
        {choices.map(([choice, label, hint]) => (
          <Radio key={choice} name={name} label={label} hint={hint} checked={value === choice} onChange={() => onChange(choice)} />
        ))}
      </fieldset>
    </Section>
  )
}

function Consequences({ result: { changes } }: { result: Result }) {
  const lines = [changes.created.length > 0 && `${changes.created.length} created`, changes.replaced.length > 0 && `${changes.replaced.length} replaced`, changes.unchanged.length + changes.skipped.length > 0 && `${changes.unchanged.length + changes.skipped.length} stay as they are`].filter(Boolean)
  return <>{lines.join(', ')}. All of it is written in one transaction; the next request uses it.</>
}

function NextSteps({ result, source }: { result: Result; source: Source }) {
  const missing = result.plan.providers.filter((provider) => !provider.has_api_key)
  const { dialect } = SOURCES[source]
  const model = result.plan.models.find(({ name }) => !name.endsWith('*'))?.name ?? 'gpt-4o'
  const steps: ReactNode[] = [
    missing.length > 0 && (
      <>
        Add {missing.length === 1 ? 'the credential' : `${missing.length} credentials`} that the file does not have in <Link to="/providers" className="text-accent underline">Providers</Link>: <code>{missing.map((provider) => provider.name).join(', ')}</code>
      </>
    ),
    result.plan.models.length > 0 && (
      <>
        Try a model in <Link to="/models" className="text-accent underline">Models</Link>.
      </>
    ),
    result.plan.keys.length > 0 && (
      <>
        See the imported keys in <Link to="/keys" className="text-accent underline">Keys</Link>; applications keep them under <code>/compat/litellm</code>.
      </>
    ),
    <>Change the base URL of the applications, as below.</>,
  ].filter(Boolean)
  return (
    <>
      <Section title="Next">
        <ol className="list-decimal pl-5">
          {steps.map((step, index) => (
            <li key={index} className="py-0.5 break-words">
              {step}
            </li>
          ))}
        </ol>
      </Section>
      <DialectSnippets model={model} only={dialect} />
    </>
  )
}
