/** Split or unified diff of two texts. Not exported from `ui/index.ts` because it loads a diff library. */
import { useMemo } from 'react'
import { cx } from '@/lib/cx'
import { diffRows, diffStats, collapseUnchanged, unifiedRows, type DiffRow, type Side } from '@/lib/diff'

interface DiffViewProps {
  before: string
  after: string
  label: string
  split?: boolean
}

export function DiffView({ before, after, label, split }: DiffViewProps) {
  const rows = useMemo(() => diffRows(before, after), [before, after])
  const stats = diffStats(rows)
  if (stats.added === 0 && stats.removed === 0) return <p className="card px-3 py-2 text-muted">Both are the same.</p>
  const shown = collapseUnchanged(split ? rows : unifiedRows(rows))
  return (
    <div className="card min-w-0">
      <p className="border-b border-line px-3 py-1.5 text-xs text-muted tabular-nums">
        <span className="text-ok">+{stats.added}</span> <span className="text-err">−{stats.removed}</span> lines
      </p>
      <div className="overflow-x-auto font-mono text-xs leading-5" role="region" tabIndex={0} aria-label={label}>
        <table className="w-full border-collapse">
          <tbody>
            {shown.map((row, at) =>
              row.kind === 'hidden' ? (
                <tr key={at} className="bg-sunken text-muted">
                  <td colSpan={split ? 4 : 3} className="px-3 py-0.5">
                    {row.count} lines that stayed the same
                  </td>
                </tr>
              ) : split ? (
                <tr key={at} className="align-top">
                  <Half side={row.left} tone={row.kind === 'same' ? 'same' : 'removed'} />
                  <Half side={row.right} tone={row.kind === 'same' ? 'same' : 'added'} />
                </tr>
              ) : (
                <Unified key={at} row={row} />
              ),
            )}
          </tbody>
        </table>
      </div>
    </div>
  )
}

type Tone = 'same' | 'removed' | 'added'
const GROUND: Record<Tone, string> = { same: '', removed: 'bg-err-soft', added: 'bg-ok-soft' }
const SIGN: Record<Tone, string> = { same: ' ', removed: '−', added: '+' }

function Unified({ row }: { row: DiffRow }) {
  const tone: Tone = row.kind === 'same' ? 'same' : row.left ? 'removed' : 'added'
  return (
    <tr className={cx('align-top', GROUND[tone])}>
      <Number side={row.left} />
      <Number side={row.right} />
      <td className="px-2 break-words whitespace-pre-wrap">
        <Words side={row.left ?? row.right} tone={tone} />
      </td>
    </tr>
  )
}

function Half({ side, tone }: { side: Side | null; tone: Tone }) {
  return (
    <>
      <Number side={side} />
      <td className={cx('w-1/2 px-2 break-words whitespace-pre-wrap', side && GROUND[tone])}>{side && <Words side={side} tone={tone} />}</td>
    </>
  )
}

const Number = ({ side }: { side: Side | null }) => <td className="w-8 px-1.5 text-right text-muted select-none">{side?.number}</td>

function Words({ side, tone }: { side: Side | null; tone: Tone }) {
  const Mark = tone === 'removed' ? 'del' : 'ins'
  return (
    <>
      <span className="mr-1 text-muted select-none" aria-label={tone === 'same' ? undefined : tone} role={tone === 'same' ? undefined : 'img'}>
        {SIGN[tone]}
      </span>
      {side?.pieces.map((piece, at) =>
        piece.changed ? (
          <Mark key={at} className={cx('rounded-[2px] no-underline', tone === 'removed' ? 'bg-err/20' : 'bg-ok/20')}>
            {piece.text}
          </Mark>
        ) : (
          <span key={at}>{piece.text}</span>
        ),
      )}
    </>
  )
}
