import type { ApiError } from '@/api/error'
import { cx } from '@/lib/cx'
import { Button } from '@/ui'

interface QueryProblemProps {
  id: string
  query: string
  error: ApiError
  /** Replaces the query by a corrected one. */
  onFix(query: string): void
  /** Selects the wrong characters in the query. */
  onShow(start: number, end: number): void
}

const CONTEXT = 24
/** Names of a choice that are listed. */
const MAX_EXPECTED = 12

/** The error of a query: the text around the wrong characters with them underlined, what is wrong, and a correction. */
export function QueryProblem({ id, query, error, onFix, onShow }: QueryProblemProps) {
  const { start, end } = wrongRange(query, error.details)
  const expected = Array.isArray(error.details['expected']) ? error.details['expected'].filter((one): one is string => typeof one === 'string') : []
  const suggestion = expected.length === 1 && /^[\w.]+$/.test(expected[0] ?? '') ? expected[0] : undefined
  const hint = suggestion === undefined && expected.length > 0 ? `Expected ${expected.slice(0, MAX_EXPECTED).join(', ')}.` : ''
  const message = (error.fields['query'] ?? error.message).replace(/^at character \d+: /, '')
  return (
    <div id={id} role="alert" className="mt-1 flex flex-wrap items-center gap-x-3 gap-y-1 rounded-sm bg-err-soft px-3 py-1.5">
      <button type="button" className="min-h-6 font-mono text-xs" title={`Select character ${start + 1}`} onClick={() => onShow(start, Math.max(end, start + 1))}>
        {start > CONTEXT && '…'}
        {query.slice(Math.max(0, start - CONTEXT), start)}
        <span className="text-err underline decoration-wavy underline-offset-2">{query.slice(start, end) || '▯'}</span>
        {query.slice(end, end + CONTEXT)}
        {query.length > end + CONTEXT && '…'}
      </button>
      <span className={cx('min-w-0 text-err', /^[a-z]/.test(message) && 'first-letter:uppercase')}>{message}</span>
      {hint !== '' && !message.includes(expected[0] ?? '') && <span className="min-w-0 text-muted">{hint}</span>}
      {suggestion && (
        <Button size="sm" onClick={() => onFix(query.slice(0, start) + suggestion + query.slice(end))}>
          Use {suggestion}
        </Button>
      )}
    </div>
  )
}

/** The server counts characters, JavaScript UTF-16 units. */
export function wrongRange(query: string, { position, length }: Record<string, unknown>): { start: number; end: number } {
  const characters = Array.from(query)
  const at = typeof position === 'number' ? position : 0
  const start = characters.slice(0, at).join('').length
  return { start, end: start + characters.slice(at, at + (typeof length === 'number' ? length : 0)).join('').length }
}
