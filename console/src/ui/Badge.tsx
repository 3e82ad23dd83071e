import type { ReactNode } from 'react'
import { cx } from '@/lib/cx'
import { isFailed } from '@/lib/failureState'
import { statusWord } from '@/lib/statusWords'

export type Tone = 'ok' | 'warn' | 'err' | 'accent' | 'muted'

const TONE: Record<Tone, string> = {
  ok: 'text-ok bg-ok-soft',
  warn: 'text-warn bg-warn-soft',
  err: 'text-err bg-err-soft',
  accent: 'text-accent bg-accent-soft',
  muted: 'text-muted bg-sunken',
}
const DOT: Record<Tone, string> = { ok: 'bg-ok', warn: 'bg-warn', err: 'bg-err', accent: 'bg-accent', muted: 'bg-muted' }

export function Badge({ tone = 'muted', children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span title={title} className={cx('inline-flex items-center gap-1 rounded-full px-2 text-xs leading-5 font-medium whitespace-nowrap inset-ring inset-ring-current/20', TONE[tone])}>
      {children}
    </span>
  )
}

/** A colored dot with a label, so that color is not the only signal. */
export function Status({ tone, children, title, wrap }: { tone: Tone; children: ReactNode; title?: string; wrap?: boolean }) {
  return (
    <span title={title} className={cx('inline-flex gap-1.5', wrap ? 'min-w-0 items-baseline break-words' : 'items-center whitespace-nowrap')}>
      <span className={cx('size-2 shrink-0 rounded-full', DOT[tone])} aria-hidden />
      {children}
    </span>
  )
}

export function statusTone(status: number): Tone {
  if (status >= 500) return 'err'
  if (status >= 400) return 'warn'
  return status >= 200 && status < 400 ? 'ok' : 'muted'
}

/** `● 502 provider error`. A failure inside a 200 is one too. */
export function HttpStatus({ status, code, short }: { status: number; code?: string | null; short?: boolean }) {
  const failed = isFailed({ status, error_code: code })
  const tone = failed && status < 400 ? 'err' : statusTone(status)
  const word = failed ? (code?.replaceAll('_', ' ') ?? statusWord(status) ?? (status >= 500 ? 'error' : 'refused')) : 'ok'
  return (
    <Status tone={tone} title={`${status} ${word}`}>
      <span className="tabular-nums">{status}</span>
      <span className={short ? 'sr-only' : failed ? undefined : 'text-muted'}>{word}</span>
    </Status>
  )
}
