import type { Schemas } from '@/api/client'
import { NO_VALUE } from '@/lib/format'

export type Entry = Schemas['HashedAuditEntry']

const value = (of: unknown): string => (of === null || of === undefined ? NO_VALUE : typeof of === 'string' ? of : JSON.stringify(of))

/** Each changed field with its value before and after. */
export function ChangeList({ changes }: { changes: Entry['changes'] }) {
  if (!changes) return null
  return (
    <ul className="flex flex-col gap-0.5 py-1">
      {changes.map((change) => (
        <li key={change.path} className="wrap-anywhere whitespace-pre-wrap">
          <code>{change.path.slice(1)}</code>: <del className="text-err no-underline">{value(change.from)}</del> → <ins className="text-ok no-underline">{value(change.to)}</ins>
        </li>
      ))}
    </ul>
  )
}
