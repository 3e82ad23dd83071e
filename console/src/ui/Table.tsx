import { useRef, type KeyboardEvent, type ReactNode } from 'react'
import { cx } from '@/lib/cx'

export interface Column<Row> {
  key: string
  header: ReactNode
  cell(row: Row): ReactNode
  /** Numeric column: right-aligned, tabular digits. */
  number?: boolean
  /** Hidden below this breakpoint. */
  from?: 'sm' | 'md' | 'lg' | 'xl' | '2xl'
  className?: string
}

interface TableProps<Row> {
  label: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  rowKey(row: Row): string | number
  /** Called on a click or Enter. */
  onOpen?: (row: Row) => void
  selected?: string | number | null
}

const FROM = { sm: 'max-sm:hidden', md: 'max-md:hidden', lg: 'max-lg:hidden', xl: 'max-xl:hidden', '2xl': 'max-2xl:hidden' }

/** Table for short lists. Arrow keys (or j and k) move between rows that can be opened. */
export function Table<Row>({ label, columns, rows, rowKey, onOpen, selected }: TableProps<Row>) {
  const body = useRef<HTMLTableSectionElement>(null)
  const moveFocus = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' || event.key === 'j' ? 1 : event.key === 'ArrowUp' || event.key === 'k' ? -1 : 0
    if (step === 0 || !(event.target instanceof HTMLTableRowElement)) return
    const next = step > 0 ? event.target.nextElementSibling : event.target.previousElementSibling
    if (next instanceof HTMLElement) {
      event.preventDefault()
      next.focus()
    }
  }
  return (
    <div className="table-scroll overflow-x-auto" role="region" aria-label={label} tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.key} scope="col" className={cx(column.number && 'num', column.from && FROM[column.from])}>
                {column.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body} onKeyDown={moveFocus}>
          {rows.map((row) => {
            const key = rowKey(row)
            return (
              <tr
                key={key}
                aria-selected={selected === undefined ? undefined : selected === key}
                {...(onOpen && {
                  'data-open': '',
                  tabIndex: 0,
                  onClick: (event) => {
                    // Clicks on links and buttons inside a row do not open the row, nor do those in a menu of it, which React passes on.
                    const { target, currentTarget } = event
                    if (target instanceof Element && currentTarget.contains(target) && !target.closest('a, button, input, select, label')) onOpen(row)
                  },
                  onKeyDown: (event) => event.key === 'Enter' && event.target === event.currentTarget && onOpen(row),
                })}
              >
                {columns.map((column) => (
                  <td key={column.key} className={cx(column.number && 'num', column.from && FROM[column.from], column.className)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            )
          })}
        </tbody>
      </table>
    </div>
  )
}
