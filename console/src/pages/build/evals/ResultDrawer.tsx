import type { ReactNode } from 'react'
import type { Schemas } from '@/api/client'
import { duration, money } from '@/lib/format'
import { answeredBy } from '@/lib/runs'
import { Badge, Button, DockedDrawer } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { AnswerCard, AnswerPair, type Answer } from '../shared/AnswerPair'
import { StepHead } from '../shared/StepHead'
import type { CaseTexts } from './useInputs'
import { subjectOf } from './useInputs'
import { useCall, type CallFacts } from './useCall'
import { itemKey, type OtherRun } from './useOtherRun'

type Result = Schemas['EvalResult']

interface ResultDrawerProps {
  run: Schemas['EvalRun']
  rows: readonly Result[]
  /** Id of the shown verdict. */
  item: number | undefined
  texts: ReadonlyMap<string, CaseTexts>
  other: OtherRun | undefined
  onItem(item: number | undefined): void
  onLog(logId: number): void
  children: ReactNode
}

/** The page beside one verdict: input, expected, the answers of one or two runs, and why. */
export function ResultDrawer({ run, rows, item, texts, other, onItem, onLog, children }: ResultDrawerProps) {
  const at = rows.findIndex((row) => row.id === item)
  const row = rows[at]
  const step = (by: number) => {
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))]
    if (next) onItem(next.id)
  }
  return (
    <DockedDrawer
      open={item !== undefined}
      onClose={() => onItem(undefined)}
      label="Result"
      head={<StepHead title="Result" position={row ? { at: at + 1, of: rows.length } : null} onStep={step} />}
      content={row ? <Content row={row} run={run} texts={texts} other={other} onLog={onLog} /> : <p className="p-4 text-muted">This result is not among the loaded ones.</p>}
    >
      {children}
    </DockedDrawer>
  )
}

interface ContentProps extends Pick<ResultDrawerProps, 'run' | 'texts' | 'other' | 'onLog'> {
  row: Result
}

function Content({ row, run, texts, other, onLog }: ContentProps) {
  const held = texts.get(row.case_id ?? '')
  const otherRow = other?.results.get(itemKey(row))
  const mine = useCall(row.log_id)
  const theirs = useCall(otherRow?.log_id ?? null)
  const a: Answer = { title: titleOf(run, other ? 'This run' : 'Answer'), ...textOf(row, mine, held), figures: <Figures row={row} call={mine.call} onLog={onLog} /> }
  const b: Answer | null = other
    ? { title: titleOf(other.run, 'Other run'), ...(otherRow ? (otherRow.log_id === null ? { text: null, empty: 'It judged the outputs of the dataset, which may have changed since.' } : textOf(otherRow, theirs, held)) : { text: null, empty: 'The other run has no verdict on this item.' }), figures: otherRow && <Figures row={otherRow} call={theirs.call} onLog={onLog} /> }
    : null
  return (
    <div className="flex flex-col gap-4 p-4">
      <Block title="Input" text={held?.input ?? subjectOf(row, texts)} />
      {held && held.expected !== '' && <Block title="Expected" text={held.expected} />}
      {b ? <AnswerPair a={a} b={b} /> : <AnswerCard answer={a} />}
      {!b && held && held.expected !== '' && a.text !== null && (
        <section>
          <h3 className="mb-1 text-xs text-muted">From expected to answer</h3>
          <DiffView before={held.expected} after={a.text} label="Differences from what was expected" />
        </section>
      )}
    </div>
  )
}

function titleOf(run: Schemas['EvalRun'], word: string): string {
  return [word, ...answeredBy(run)].join(' · ')
}

function textOf(row: Result, { call, failed }: { call: CallFacts | undefined; failed: boolean }, held: CaseTexts | undefined): { text: string | null; empty: string } {
  if (row.log_id === null) return { text: held?.output || held?.expected || null, empty: 'Nothing is stored with the case.' }
  return { text: call?.answer ?? null, empty: failed ? 'The log row is gone.' : call ? 'The answer has no text.' : 'Loading…' }
}

function Figures({ row, call, onLog }: { row: Result; call: CallFacts | undefined; onLog(logId: number): void }) {
  const { log_id: logId } = row
  return (
    <div className="flex flex-col gap-1">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-0.5">
        <Badge tone={row.passed ? 'ok' : 'err'}>{row.passed ? 'passed' : 'failed'}</Badge>
        <span>score {row.score.toFixed(2)}</span>
        {call && (
          <>
            <span>{call.costUsd === null ? 'no price' : money(call.costUsd)}</span>
            <span>{duration(call.latencyMs)}</span>
          </>
        )}
        {logId !== null && (
          <Button size="sm" kind="ghost" onClick={() => onLog(logId)}>
            Open request
          </Button>
        )}
      </div>
      {row.details !== '' && <p className="break-words text-muted">{row.details}</p>}
    </div>
  )
}

function Block({ title, text }: { title: string; text: string }) {
  return (
    <section>
      <h3 className="mb-1 text-xs text-muted">{title}</h3>
      <p className="card max-h-48 overflow-y-auto bg-sunken p-3 break-words whitespace-pre-wrap" tabIndex={0} role="region" aria-label={title}>
        {text}
      </p>
    </section>
  )
}
