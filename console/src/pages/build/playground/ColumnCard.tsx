import { Link } from '@tanstack/react-router'
import { BookText, CornerDownRight, EllipsisVertical, Maximize2, Minimize2, RotateCw, SlidersHorizontal, Square, Trash2 } from 'lucide-react'
import { lazy, Suspense, useState } from 'react'
import { cx } from '@/lib/cx'
import { compact, duration, money } from '@/lib/format'
import { Badge, Button, CopyButton, Menu, MenuItem } from '@/ui'
import { ModelPicker } from '../shared/ModelPicker'
import { PromptPicker } from '../shared/PromptPicker'
import { ParamFields } from './ParamFields'
import { NO_PARAMS, type ColumnSetup, type Setup, type ToolCall } from './setup'
import { ToolCallList } from './ToolCalls'
import { isRunning, type ColumnResult } from './usePlaygroundRuns'

const Markdown = lazy(() => import('@/ui/Markdown'))

interface ColumnCardProps {
  number: number
  column: ColumnSetup
  /** What applies to all columns. */
  shared: Pick<Setup, 'params' | 'prompt'>
  cell: ColumnResult | undefined
  focused: boolean
  alone: boolean
  blocked: string | null
  /** Why the conversation cannot go on from the answer, or null. */
  unready: string | null
  onChange(column: ColumnSetup): void
  onRemove(): void
  onRun(): void
  onStop(): void
  /** Takes the answer over into the messages. */
  onContinue(output: string, calls: readonly ToolCall[]): void
  onFocus(): void
}

/** One model column with its output. */
export function ColumnCard({ number, column, shared, cell, focused, alone, blocked, unready, onChange, onRemove, onRun, onStop, onContinue, onFocus }: ColumnCardProps) {
  const [tuning, setTuning] = useState(false)
  const [ownPrompt, setOwnPrompt] = useState(false)
  const busy = isRunning(cell)
  const calls = cell?.calls ?? []
  const name = `${column.provider}/${column.model}`
  return (
    <section className="card flex min-h-72 min-w-0 flex-col" aria-label={`Column ${number}: ${name}`}>
      <header className="flex flex-col gap-1 border-b border-line p-2">
        <div className="flex items-center gap-1 pl-1">
          <span className="flex-1 text-xs text-muted tabular-nums">Column {number}</span>
          {busy ? (
            <Button square size="sm" kind="ghost" aria-label={`Stop column ${number}`} icon={<Square size={14} aria-hidden />} onClick={onStop} />
          ) : (
            <Button square size="sm" kind="ghost" needs="member" blocked={blocked ?? false} aria-label={`Run column ${number}`} icon={<RotateCw size={14} aria-hidden />} onClick={onRun} />
          )}
          <Menu trigger={<Button square size="sm" kind="ghost" aria-label={`More of column ${number}`} icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem icon={<SlidersHorizontal size={14} aria-hidden />} onSelect={() => setTuning(!tuning)}>
              Custom settings
            </MenuItem>
            <MenuItem icon={<BookText size={14} aria-hidden />} onSelect={() => (column.prompt || ownPrompt ? (onChange({ ...column, prompt: null }), setOwnPrompt(false)) : setOwnPrompt(true))}>
              {column.prompt || ownPrompt ? 'Use shared prompt' : 'Other prompt or version'}
            </MenuItem>
            <MenuItem icon={focused ? <Minimize2 size={14} aria-hidden /> : <Maximize2 size={14} aria-hidden />} blocked={alone && !focused && 'It is the only column'} onSelect={onFocus}>
              {focused ? 'Show all columns' : 'Show only this one'}
            </MenuItem>
            <MenuItem danger icon={<Trash2 size={14} aria-hidden />} blocked={alone && 'At least one column is needed'} onSelect={onRemove}>
              Remove column
            </MenuItem>
          </Menu>
        </div>
        <ModelPicker quiet provider={column.provider} model={column.model} onChange={(provider, model) => onChange({ ...column, provider, model })} />
        {(ownPrompt || column.prompt) && <PromptPicker quiet value={column.prompt ?? null} onChange={(prompt) => onChange({ ...column, prompt })} none={shared.prompt ? 'Shared prompt' : 'No prompt'} />}
      </header>
      {tuning && (
        <div className="border-b border-line p-3">
          <ParamFields params={column.params ?? NO_PARAMS} placeholder={shared.params} onChange={(params) => onChange({ ...column, params })} />
          <Button size="sm" className="mt-2" blocked={column.params === null && 'It uses them already'} onClick={() => onChange({ ...column, params: null })}>
            Use shared settings
          </Button>
        </div>
      )}
      {!tuning && column.params && (
        <p className="border-b border-line px-3 py-1 text-xs text-muted">Custom settings</p>
      )}
      <Output number={number} cell={cell} />
      {cell?.state === 'done' && (
        <div className="border-t border-line px-3 py-1.5">
          <Button size="sm" kind="ghost" icon={<CornerDownRight size={14} aria-hidden />} blocked={unready ?? false} onClick={() => onContinue(cell.output, calls)}>
            {calls.length === 0 ? 'Continue' : calls.length === 1 ? 'Add the result' : 'Add the results'}
          </Button>
        </div>
      )}
      {cell && <Figures cell={cell} />}
    </section>
  )
}

function Output({ number, cell }: { number: number; cell: ColumnResult | undefined }) {
  const [plain, setPlain] = useState(false)
  if (!cell) return <p className="flex-1 p-3 text-muted">The response will appear here.</p>
  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div className={cx('max-h-[60vh] min-h-40 flex-1 overflow-y-auto p-3 pt-9 break-words', cell.state === 'waiting' && 'text-muted')} role="region" tabIndex={0} aria-label={`Answer ${number}`} aria-busy={isRunning(cell)}>
        {cell.state === 'waiting' && cell.output === '' ? <span className="pulse">Waiting for the answer…</span> : <Words text={cell.output} plain={plain || cell.state !== 'done'} />}
        {cell.state === 'streaming' && cell.calls.length === 0 && <Cursor />}
        {cell.failure && (
          <p role="alert" className={cx('rounded-sm border border-line bg-err-soft px-3 py-2 text-err', cell.output !== '' && 'mt-3')}>
            {cell.failure.message}
            <span className="block font-mono text-xs">{cell.failure.code}</span>
          </p>
        )}
        {cell.calls.length > 0 && <ToolCallList label={`Tool calls of answer ${number}`} calls={cell.calls} className={cell.output === '' ? undefined : 'mt-3'} />}
        {cell.state === 'streaming' && cell.calls.length > 0 && <Cursor />}
        {cell.state === 'done' && cell.output === '' && cell.calls.length === 0 && <span className="text-muted">The model returned no text.</span>}
      </div>
      {cell.output !== '' && (
        <div className="absolute top-1.5 right-3 flex items-center gap-1">
          {cell.state === 'done' && (
            <Button size="sm" kind="ghost" aria-pressed={plain} onClick={() => setPlain(!plain)}>
              {plain ? 'Markdown' : 'Plain text'}
            </Button>
          )}
          <CopyButton value={cell.output} label={`Copy answer ${number}`} />
        </div>
      )}
    </div>
  )
}

/** Where the answer goes on. */
const Cursor = () => <span className="pulse ml-0.5 inline-block h-3.5 w-1.5 bg-accent align-text-bottom" aria-hidden />

/** The answer as Markdown once it is complete; half of it may not be valid. */
function Words({ text, plain }: { text: string; plain: boolean }) {
  const words = <span className="whitespace-pre-wrap">{text}</span>
  if (plain) return words
  return (
    <Suspense fallback={words}>
      <Markdown text={text} />
    </Suspense>
  )
}

const WORDS: Record<ColumnResult['state'], string> = { waiting: 'waiting', streaming: 'answering', done: 'finished', failed: 'failed', stopped: 'stopped' }

/** This page measures the first token, the gateway the latency. A page that was busy when the token came would show it after the end. */
function firstTokenMs(measured: number | null, latency: number): number | null {
  return measured === null ? null : Math.min(measured, latency)
}

function Figures({ cell }: { cell: ColumnResult }) {
  const run = cell.run
  const logId = run?.log_id ?? cell.failure?.logId ?? cell.loggedId
  const facts: [string, string][] = run
    ? [
        ['First token', duration(firstTokenMs(cell.ttftMs, run.latency_ms))],
        ['Latency', duration(run.latency_ms)],
        ['Tokens', run.usage ? `${compact(run.usage.prompt_tokens)} in, ${compact(run.usage.completion_tokens)} out` : '–'],
        ['Cost', run.cost_usd === null ? 'no price' : money(run.cost_usd)],
      ]
    : []
  return (
    <footer className="flex flex-wrap items-center gap-x-3 gap-y-1 border-t border-line px-3 py-1.5 text-xs">
      <Badge tone={cell.state === 'done' ? 'ok' : cell.state === 'failed' ? 'err' : cell.state === 'stopped' ? 'warn' : 'accent'}>{cell.loggedId === null ? WORDS[cell.state] : 'logged answer'}</Badge>
      {facts.map(([name, value]) => (
        <span key={name} className="whitespace-nowrap tabular-nums">
          <span className="text-muted">{name}</span> {value}
        </span>
      ))}
      {run?.finish_reason && <span className="text-muted">{run.finish_reason}</span>}
      {logId != null && (
        <Link to="/logs" search={{ log: logId }} className="text-accent underline">
          Open log
        </Link>
      )}
    </footer>
  )
}
