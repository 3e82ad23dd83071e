import { plural } from '@/lib/format'
import type { BadRow, FileRow, LoadedFile, Mapping } from '@/lib/importFile'
import { Table, type Column } from '@/ui'

const SHOWN = 5

interface ImportPreviewProps {
  file: LoadedFile
  mapping: Mapping
  bad: readonly BadRow[]
  /** Bad rows that the server counted but did not name. */
  more: number
}

/** The first rows as cases, and every row that cannot be one. */
export function ImportPreview({ file, mapping, bad, more }: ImportPreviewProps) {
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
      {bad.length > 0 && (
        <section role="alert" className="rounded-sm border border-line bg-err-soft px-3 py-2">
          <h3 className="text-sm text-err">{plural(bad.length + more, 'row')} cannot be imported</h3>
          <ul className="mt-1 max-h-40 overflow-y-auto text-xs" aria-label="Bad rows" tabIndex={0}>
            {bad.map((row, at) => (
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
            {file.rows.length > SHOWN && `, of which the first ${SHOWN}`}
          </p>
          <Table label="Preview" columns={columns} rows={file.rows.slice(0, SHOWN)} rowKey={(row) => row.line} />
        </div>
      )}
    </>
  )
}
