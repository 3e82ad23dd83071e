import { useId, useMemo } from 'react'
import type { ApiError } from '@/api/error'
import { cx } from '@/lib/cx'
import { templateLines, type TemplatePiece } from '@/lib/template'

interface TemplateEditorProps {
  label: string
  value: string
  onChange?: (value: string) => void
  readOnly?: boolean
  rows?: number
  /** Server error, which may contain a line and column. */
  problem?: ApiError | null
  placeholder?: string
}

const LINE = 20

/**
 * Text area with line numbers and highlighted variables: a transparent native textarea over a highlighted copy. Native
 * keyboard handling, undo, spell check and screen reader support keep working.
 */
export function TemplateEditor({ label, value, onChange, readOnly, rows = 14, problem, placeholder }: TemplateEditorProps) {
  const id = useId()
  const lines = useMemo(() => templateLines(value), [value])
  const position = parsePosition(problem)
  const layer = 'col-start-1 row-start-1 min-w-0 font-mono text-xs leading-5 break-words whitespace-pre-wrap'
  return (
    <div className={cx('max-h-[60vh] overflow-y-auto rounded-sm border bg-surface focus-within:border-accent', position ? 'border-err' : 'border-line-strong', readOnly && 'bg-sunken')}>
      <div className="grid grid-cols-[minmax(0,1fr)]" style={{ minHeight: rows * LINE + 12 }}>
        <div className={cx(layer, 'pointer-events-none py-1.5')} aria-hidden>
          {lines.map((pieces, at) => (
            <div key={at} className="flex">
              <span className="w-10 shrink-0 pr-2 text-right text-muted select-none">{at + 1}</span>
              <span className={cx('min-h-5 min-w-0 flex-1 pr-2', position?.line === at + 1 && 'bg-err-soft underline decoration-err decoration-wavy underline-offset-2')}>
                {pieces.map((piece, index) => (
                  <Piece key={index} piece={piece} />
                ))}
              </span>
            </div>
          ))}
        </div>
        <textarea
          id={id}
          aria-label={label}
          aria-invalid={position !== null || undefined}
          readOnly={readOnly}
          value={value}
          placeholder={placeholder}
          spellCheck={false}
          autoComplete="off"
          className={cx(layer, 'resize-none overflow-hidden bg-transparent py-1.5 pr-2 pl-10 text-transparent caret-fg outline-none')}
          onChange={(event) => onChange?.(event.target.value)}
        />
      </div>
    </div>
  )
}

function Piece({ piece }: { piece: TemplatePiece }) {
  if (piece.kind === 'variable') return <span className="rounded-[2px] bg-accent-soft text-accent">{piece.text}</span>
  if (piece.kind === 'invalid') return <span className="bg-err-soft text-err underline decoration-wavy">{piece.text}</span>
  return <>{piece.text}</>
}

function parsePosition(problem: ApiError | null | undefined): { line: number } | null {
  const line = problem?.details['line']
  return typeof line === 'number' ? { line } : null
}
