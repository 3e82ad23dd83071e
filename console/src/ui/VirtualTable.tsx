import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode, type UIEvent } from 'react'
import { cx } from '@/lib/cx'
import { HeaderCell } from './HeaderCell'

export interface GridColumn<Row> {
  key: string
  header: string
  cell(row: Row): ReactNode
  /** CSS grid track: `90px`, `minmax(120px, 1fr)`. */
  width: string
  number?: boolean
  /** Name of the order that a click on the header chooses. */
  sort?: string
}

export interface GridOrder {
  field: string
  ascending: boolean
}

/** Rows chosen by checkboxes, besides the one with the cursor. */
export interface GridChoice<Row> {
  ids: ReadonlySet<number | string>
  label(row: Row): string
  /** With `through`, all rows from the last one to this one (Shift). */
  onToggle(row: Row, through: boolean): void
  onToggleAll(): void
}

interface VirtualTableProps<Row> {
  label: string
  columns: readonly GridColumn<Row>[]
  rows: readonly Row[]
  rowId(row: Row): number | string
  rowHeight: number
  /** Total number of rows if more can be loaded; -1 if unknown. */
  rowCount?: number
  selected?: number | string | null
  /** Called on a click or Enter. */
  onOpen(row: Row): void
  /** Called when the arrow keys select a row. */
  onMove(row: Row): void
  /** Called near the end of the loaded rows. */
  onEnd?: () => void
  /** Called with true while the first row is visible. */
  onTop?: (top: boolean) => void
  /** Ids of new rows, highlighted briefly. */
  fresh?: (row: Row) => boolean
  /** Scrolls to the first row on every change. */
  topKey?: number
  footer?: ReactNode
  order?: GridOrder
  onOrder?: (field: string) => void
  /** Called when the user has set the width of a column. */
  onResize?: (key: string, width: number) => void
  choice?: GridChoice<Row>
  /** A second line of each row, below all columns, where the width is too small for another column. */
  secondLine?: { header: string; cell(row: Row): ReactNode } | undefined
}

const CHOICE_TRACK = '28px'
const SECOND_LINE_HEIGHT = 22

/** Virtualized grid: only visible rows are rendered. */
export function VirtualTable<Row>(props: VirtualTableProps<Row>) {
  const { label, columns, rows, rowId, selected, onOpen, onMove, onEnd, onTop, fresh, topKey, footer, order, onOrder, onResize, choice, secondLine } = props
  const rowHeight = props.rowHeight + (secondLine ? SECOND_LINE_HEIGHT : 0)
  const name = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 12,
    getItemKey: (at) => {
      const row = rows[at]
      return row === undefined ? at : rowId(row)
    },
  })
  useEffect(() => virtual.measure(), [rowHeight, virtual])

  const items = virtual.getVirtualItems()
  const last = items.at(-1)?.index ?? -1
  useEffect(() => {
    if (rows.length > 0 && last >= rows.length - 20) onEnd?.()
  }, [last, rows.length, onEnd])

  const at = rows.findIndex((row) => rowId(row) === selected)
  const [drag, setDrag] = useState<{ key: string; width: number } | null>(null)
  const tracks = columns.map((column) => (drag?.key === column.key ? `${drag.width}px` : column.width))
  const template = [...(choice ? [CHOICE_TRACK] : []), ...tracks].join(' ')

  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: 'auto' })
    // Scroll only when the selection changes: new rows on top must not move the view.
  }, [selected])

  useEffect(() => {
    if (topKey) scroller.current?.scrollTo({ top: 0 })
  }, [topKey])

  const keys = (event: KeyboardEvent) => {
    if (event.target !== scroller.current) return
    const current = rows[at]
    if (event.key === 'Enter' && current !== undefined) {
      event.preventDefault()
      onOpen(current)
      return
    }
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 300) / rowHeight) - 2)
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }
    const step = steps[event.key]
    if (step === undefined) return
    const row = rows[Math.min(rows.length - 1, Math.max(0, (at < 0 ? (step > 0 ? -1 : 0) : at) + step))]
    if (row !== undefined) {
      event.preventDefault()
      onMove(row)
    }
  }

  return (
    <div
      ref={scroller}
      role="grid"
      aria-label={label}
      aria-rowcount={props.rowCount ?? rows.length + 1}
      aria-colcount={columns.length + (choice ? 1 : 0) + (secondLine ? 1 : 0)}
      aria-activedescendant={at >= 0 && items.some((item) => item.index === at) ? `${name}-${String(selected)}` : undefined}
      tabIndex={0}
      className="min-h-0 flex-1 overflow-auto bg-surface focus-visible:-outline-offset-2"
      onKeyDown={keys}
      onScroll={(event: UIEvent<HTMLDivElement>) => onTop?.(event.currentTarget.scrollTop < rowHeight)}
    >
      <div className="w-max min-w-full">
        <div role="row" aria-rowindex={1} className="sticky top-0 z-10 grid border-b border-line bg-surface px-2 text-xs font-medium text-muted" style={{ gridTemplateColumns: template }}>
          {choice && (
            <div role="columnheader" className="grid place-items-center">
              <input type="checkbox" className="check" aria-label="Select all loaded rows" checked={rows.length > 0 && choice.ids.size >= rows.length} onChange={choice.onToggleAll} />
            </div>
          )}
          {columns.map((column) => (
            <HeaderCell key={column.key} column={column} order={order} onOrder={onOrder} onDrag={(width) => setDrag(width === null ? null : { key: column.key, width })} onResize={onResize} />
          ))}
          {secondLine && <div role="columnheader" className="sr-only">{secondLine.header}</div>}
        </div>
        <div role="rowgroup" className="relative" style={{ height: virtual.getTotalSize() }}>
          {items.map((item) => {
            const row = rows[item.index]
            if (row === undefined) return null
            const id = rowId(row)
            return (
              <div
                key={id}
                id={`${name}-${id}`}
                role="row"
                aria-rowindex={item.index + 2}
                aria-selected={id === selected}
                data-row={id}
                className={cx('absolute inset-x-0 top-0 grid cursor-pointer items-center border-b border-line px-2', secondLine && 'content-center', id === selected ? 'bg-accent-soft' : 'hover:bg-sunken', fresh?.(row) && 'tint')}
                style={{ gridTemplateColumns: template, height: item.size, transform: `translateY(${item.start}px)` }}
                onClick={() => onOpen(row)}
              >
                {choice && (
                  <div role="gridcell" className={cx('grid h-full place-items-center', secondLine && 'row-span-2')} onClick={(event) => event.stopPropagation()}>
                    <input type="checkbox" className="check" aria-label={choice.label(row)} checked={choice.ids.has(id)} onChange={(event) => choice.onToggle(row, (event.nativeEvent as MouseEvent).shiftKey)} />
                  </div>
                )}
                {columns.map((column) => (
                  <div key={column.key} role="gridcell" className={cx('px-2', secondLine ? 'max-sm:line-clamp-2 max-sm:leading-[1.15] max-sm:wrap-anywhere sm:truncate' : 'truncate', column.number && 'text-right')}>
                    {column.cell(row)}
                  </div>
                ))}
                {secondLine && (
                  <div role="gridcell" className={cx('truncate px-2 text-muted', choice ? 'col-[2/-1]' : 'col-span-full')}>
                    {secondLine.cell(row)}
                  </div>
                )}
              </div>
            )
          })}
        </div>
        {footer}
      </div>
    </div>
  )
}
