import { plural } from '@/lib/format'
import type { InvalidRow, FileRow, LoadedFile, ColumnMapping } from '@/lib/importFile'
import { Table, type Column } from '@/ui'

const MAX_PREVIEW_ROWS = 5

interface ImportPreviewProps {
  file: LoadedFile
  mapping: ColumnMapping
  invalid: readonly InvalidRow[]
  /** Number of invalid rows that the server counted but did not list. */
  more: number
}

/** Preview of the first rows, and all invalid rows. */
export function ImportPreview({ file, mapping, invalid, more }: ImportPreviewProps) {
  const rest = file.columns.filter((column) => column !== mapping.input && column !== mapping.expected)
  const cell = (row: FileRow, name: string) => {
    const value = row.cells[name]
    return typeof value === 'string' ? value : value === undefined ? '–' : <code>{JSON.stringify(value)}</code>
  }
  const columns: Column<FileRow>[] = [
    { key: 'line', header: file.format === 'json' ? 'Row' : 'Line', number: true, cell: (row) => row.line },
    { key: 'input', header: 'Input', className: 'max-w-64 truncate', cell: (row) => cell(row, mapping.input) },
    { key: 'expected', header: 'Expected', className: 'max-w-40 truncate', cell: (row) => (mapping.expected === '' ? '–' : cell(row, mapping.expected)) },
    { key: 'rest', header: 'Metadata', className: 'max-w-48 truncate text-muted', from: 'sm', cell: (row) => rest.map((name) => `${name}: ${JSON.stringify(row.cells[name] ?? null)}`).join(', ') || '–' },
  ]
  return (
    <>
      {invalid.length > 0 && (
        <section role="alert" className="rounded-sm border border-line bg-err-soft px-3 py-2">
          <h3 className="text-sm text-err">{plural(invalid.length + more, 'row')} cannot be imported</h3>
          <ul className="mt-1 max-h-40 overflow-y-auto text-xs" aria-label="Bad rows" tabIndex={0}>
            {invalid.map((row, at) => (
              <li key={at} className="break-words">
                <span className="tabular-nums">
                  {file.format === 'json' ? 'Row' : 'Line'} {row.line}
                </span>
                : {row.message}
              </li>
            ))}
            {more > 0 && <li>and {more} more</li>}
          </ul>
        </section>
      )}
      {file.rows.length > 0 && (
        <div className="card">
          <p className="px-3 py-1.5 text-xs text-muted">
            {plural(file.rows.length, 'row')}
            {file.rows.length > MAX_PREVIEW_ROWS && `, of which the first ${MAX_PREVIEW_ROWS}`}
          </p>
          <Table label="Preview" columns={columns} rows={file.rows.slice(0, MAX_PREVIEW_ROWS)} rowKey={(row) => row.line} />
        </div>
      )}
    </>
  )
}
