import { useMemo, useRef, useState } from 'react'
import type { LogRow } from '@/api/logs'

/** The rows chosen by checkboxes. `key` names the query; another query starts without a choice. */
export function useSelection(key: string, rows: readonly LogRow[]) {
  const [state, setState] = useState<{ key: string; ids: ReadonlySet<number> }>({ key, ids: new Set() })
  const last = useRef<number | null>(null)
  const ids = state.key === key ? state.ids : NONE
  const chosen = useMemo(() => rows.filter((row) => ids.has(row.id)), [rows, ids])
  const set = (next: ReadonlySet<number>) => setState({ key, ids: next })

  const toggle = (row: LogRow, through: boolean) => {
    const next = new Set(ids)
    const select = !ids.has(row.id)
    for (const id of through ? idsBetween(rows, last.current, row.id) : [row.id]) {
      if (select) next.add(id)
      else next.delete(id)
    }
    last.current = row.id
    set(next)
  }
  const toggleAll = () => set(chosen.length === rows.length ? NONE : new Set(rows.map((row) => row.id)))
  return { ids, chosen, toggle, toggleAll, clear: () => set(NONE) }
}

const NONE: ReadonlySet<number> = new Set()

/** Ids from one row to another, in the order of the list. */
export function idsBetween(rows: readonly { id: number }[], from: number | null, to: number): number[] {
  const start = rows.findIndex((row) => row.id === from)
  const end = rows.findIndex((row) => row.id === to)
  if (start < 0) return [to]
  return rows.slice(Math.min(start, end), Math.max(start, end) + 1).map((row) => row.id)
}
