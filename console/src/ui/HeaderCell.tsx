import { ArrowDown, ArrowUp } from 'lucide-react'
import { useRef, type KeyboardEvent, type PointerEvent } from 'react'
import { cx } from '@/lib/cx'
import type { GridColumn, GridOrder } from './VirtualTable'

const MIN_WIDTH = 56
const MAX_WIDTH = 800
const KEY_STEP = 16

interface HeaderCellProps<Row> {
  column: GridColumn<Row>
  order?: GridOrder | undefined
  onOrder?: ((field: string) => void) | undefined
  /** Width while the edge is dragged; null at the end. */
  onDrag(width: number | null): void
  onResize?: ((key: string, width: number) => void) | undefined
}

/** Header of a grid column: a click sorts, dragging the right edge or arrow keys on it change the width. */
export function HeaderCell<Row>({ column, order, onOrder, onDrag, onResize }: HeaderCellProps<Row>) {
  const cell = useRef<HTMLDivElement>(null)
  const start = useRef<{ x: number; width: number } | null>(null)
  const sorted = column.sort !== undefined && order?.field === column.sort
  const clamp = (width: number) => Math.round(Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, width)))
  const widthNow = () => cell.current?.getBoundingClientRect().width ?? MIN_WIDTH
  const dragged = (event: PointerEvent) => clamp((start.current?.width ?? 0) + event.clientX - (start.current?.x ?? 0))
  const resizeByKey = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? KEY_STEP : event.key === 'ArrowLeft' ? -KEY_STEP : 0
    if (step === 0) return
    event.preventDefault()
    event.stopPropagation()
    onResize?.(column.key, clamp(widthNow() + step))
  }
  const Arrow = order?.ascending ? ArrowUp : ArrowDown
  return (
    <div ref={cell} role="columnheader" aria-sort={column.sort === undefined ? undefined : sorted ? (order?.ascending ? 'ascending' : 'descending') : 'none'} className="relative min-w-0">
      {column.sort !== undefined && onOrder ? (
        <button type="button" className={cx('flex w-full items-center gap-1 px-2 py-1.5 hover:text-fg', column.number && 'justify-end', sorted && 'text-fg')} onClick={() => onOrder(column.sort ?? '')}>
          {sorted && column.number && <Arrow size={12} className="shrink-0" aria-hidden />}
          <span className="truncate">{column.header}</span>
          {sorted && !column.number && <Arrow size={12} className="shrink-0" aria-hidden />}
        </button>
      ) : (
        <div className={cx('truncate px-2 py-1.5', column.number && 'text-right')}>{column.header}</div>
      )}
      {onResize && (
        <div
          role="separator"
          aria-orientation="vertical"
          aria-label={`Width of ${column.header}`}
          aria-valuenow={Number.parseInt(column.width, 10) || MIN_WIDTH}
          aria-valuemin={MIN_WIDTH}
          aria-valuemax={MAX_WIDTH}
          tabIndex={0}
          className="absolute inset-y-0 -right-1 z-10 w-2 cursor-col-resize touch-none border-r border-transparent hover:border-line-strong max-sm:hidden"
          style={{ right: 0 }}
          onPointerDown={(event) => {
            start.current = { x: event.clientX, width: widthNow() }
            event.currentTarget.setPointerCapture(event.pointerId)
          }}
          onPointerMove={(event) => start.current && onDrag(dragged(event))}
          onPointerUp={(event) => {
            if (start.current) onResize(column.key, dragged(event))
            start.current = null
            onDrag(null)
          }}
          onPointerCancel={() => {
            start.current = null
            onDrag(null)
          }}
          onKeyDown={resizeByKey}
        />
      )}
    </div>
  )
}
