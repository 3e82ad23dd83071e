/** Frame of a chart: title, current value, legend, and the data as a table. */
import { Table2, ChartColumn } from 'lucide-react'
import { type ReactNode, useId, useState } from 'react'

export interface LegendItem {
  name: string
  color: string
  value?: string
  /** False for a series that the user has hidden. */
  shown?: boolean
}

interface Props {
  title: string
  /** Value next to the title: the total or the hovered value. */
  value?: ReactNode
  legend?: LegendItem[]
  /** Makes the items with `shown` buttons that hide and show their series. */
  onToggle?: ((name: string) => void) | undefined
  /** Summary and legend in one line and no card. */
  strip?: boolean
  /** The data as a table. */
  table: { header: string[]; rows: string[][] }
  children: ReactNode
}

export function ChartFrame({ title, value, legend = [], onToggle, strip, table, children }: Props): ReactNode {
  const [asTable, setAsTable] = useState(false)
  const id = useId()
  const keys = legend.length > 0 && !asTable && <Legend items={legend} onToggle={onToggle} className={strip ? undefined : 'mt-2'} />
  const label = asTable ? `Show ${title} as a chart` : `View ${title} as a table`
  return (
    <figure className={strip ? 'min-w-0' : 'card min-w-0 p-3'} aria-labelledby={id}>
      <div className={strip ? 'flex min-h-6 flex-wrap items-center gap-x-3' : 'mb-2 flex min-h-6 items-start gap-2'}>
        <h3 id={id} className={strip ? 'sr-only' : 'text-sm font-medium'}>
          {title}
        </h3>
        <div className={`min-w-0 flex-1 text-xs text-muted tabular-nums ${strip ? '' : 'truncate text-right'}`}>{value}</div>
        {strip && keys}
        <button type="button" className="btn btn-ghost btn-icon btn-sm -my-0.5" aria-label={label} aria-pressed={asTable} title={label} onClick={() => setAsTable(!asTable)}>
          {asTable ? <ChartColumn size={14} aria-hidden /> : <Table2 size={14} aria-hidden />}
        </button>
      </div>
      {asTable ? <FigureTable title={title} {...table} /> : children}
      {!strip && keys}
    </figure>
  )
}

function Legend({ items, onToggle, className = '' }: { items: LegendItem[]; onToggle: ((name: string) => void) | undefined; className?: string | undefined }): ReactNode {
  return (
    <ul className={`${className} flex flex-wrap gap-x-1 gap-y-0.5 text-xs text-muted`}>
      {items.map((item) => (
        <li key={item.name} className="min-w-0">
          {onToggle && item.shown !== undefined ? (
            <button type="button" className="flex min-h-6 max-w-full items-center gap-1.5 rounded-sm px-1 hover:bg-sunken" aria-pressed={item.shown} title={item.shown ? `Hide ${item.name}` : `Show ${item.name}`} onClick={() => onToggle(item.name)}>
              <LegendLabel item={item} />
            </button>
          ) : (
            <span className="flex min-h-6 items-center gap-1.5 px-1">
              <LegendLabel item={item} />
            </span>
          )}
        </li>
      ))}
    </ul>
  )
}

function LegendLabel({ item }: { item: LegendItem }): ReactNode {
  const isHidden = item.shown === false
  return (
    <>
      <span className="size-2 shrink-0 rounded-[2px] border" style={{ borderColor: item.color, background: isHidden ? 'transparent' : item.color }} />
      <span className={isHidden ? 'name truncate text-left line-through' : 'name truncate text-left'}>{item.name}</span>
      {item.value !== undefined && <span className="text-fg tabular-nums">{item.value}</span>}
    </>
  )
}

function FigureTable({ title, header, rows }: { title: string; header: string[]; rows: string[][] }): ReactNode {
  return (
    <div className="max-h-56 overflow-auto" tabIndex={0} role="region" aria-label={`${title}, as a table`}>
      <table className="table">
        <thead>
          <tr>
            {header.map((name, at) => (
              <th key={name} scope="col" className={at > 0 ? 'num' : undefined}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row[0]}>
              {row.map((cell, at) => (
                <td key={header[at]} className={at > 0 ? 'num' : 'whitespace-nowrap'}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
