import type { Change } from '@/lib/replays'

const TONE = { ok: 'text-ok', err: 'text-err', muted: 'text-muted' }

/** A change with its tone; the sign says the direction, too. */
export function ChangeText({ change }: { change: Change }) {
  return <span className={`whitespace-nowrap tabular-nums ${TONE[change.tone]}`}>{change.text}</span>
}
