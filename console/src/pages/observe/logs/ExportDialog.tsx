import { useEffect, useRef, useState } from 'react'
import { api } from '@/api/client'
import type { LogRow } from '@/api/logs'
import { asApiError, type ApiError } from '@/api/error'
import { downloadParts } from '@/lib/download'
import { integer, plural } from '@/lib/format'
import { Button, Dialog, ErrorLine, Field, Select, toast, toastWarning } from '@/ui'
import { collectRows, formatRows, MAX_EXPORT_ROWS, type ExportFormat, type RowQuery } from './exportRows'

interface ExportDialogProps {
  query: RowQuery
  /** The chosen rows; all matching rows without any. */
  selected: readonly LogRow[]
  onClose(): void
}

const TYPES: Record<ExportFormat, string> = { csv: 'text/csv', ndjson: 'application/x-ndjson' }

export function ExportDialog({ query, selected, onClose }: ExportDialogProps) {
  const { sort: _, ...filter } = query
  const count = api.useQuery('get', '/api/v1/logs/facets', { params: { query: { ...filter, fields: 'status', limit: 1 } } }, { enabled: selected.length === 0, retry: false, meta: { quiet: true } })
  const matching = count.data && !count.data.partial ? count.data.rows : null
  const [format, setFormat] = useState<ExportFormat>('csv')
  const [progress, setProgress] = useState<number | null>(null)
  const [error, setError] = useState<ApiError | null>(null)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])

  const save = (parts: string[]) => downloadParts(`logs.${format === 'csv' ? 'csv' : 'jsonl'}`, TYPES[format], parts)
  const start = async () => {
    if (selected.length > 0) {
      save([formatRows(selected, format, true)])
      return onClose()
    }
    const controller = new AbortController()
    running.current = controller
    setError(null)
    setProgress(0)
    try {
      const result = await collectRows(query, { format, signal: controller.signal, onProgress: setProgress })
      save(result.parts)
      if (result.incomplete) toastWarning(`Exported ${plural(result.rows, 'row')}. ${result.incomplete} Narrow the query or the range for the rest.`)
      else toast(`Exported ${plural(result.rows, 'row')}`)
      onClose()
    } catch (failure) {
      if (!controller.signal.aborted) setError(asApiError(failure))
      setProgress(null)
    }
  }
  const total = matching === null ? null : Math.min(matching, MAX_EXPORT_ROWS)
  const isRunning = progress !== null
  return (
    <Dialog
      open
      size="sm"
      onClose={onClose}
      title={selected.length > 0 ? `Export ${plural(selected.length, 'selected row')}` : 'Export all matching rows'}
      description={selected.length > 0 ? undefined : `${matching === null ? 'The rows' : plural(matching, 'row')} of the current query and time range, without bodies; at most ${integer(MAX_EXPORT_ROWS)}.`}
      onSubmit={() => void start()}
      actions={
        <>
          <Button
            onClick={() => {
              if (!isRunning) return onClose()
              running.current?.abort()
              setProgress(null)
            }}
          >
            {isRunning ? 'Stop' : 'Cancel'}
          </Button>
          <Button kind="primary" type="submit" busy={isRunning}>
            Export
          </Button>
        </>
      }
    >
      <Field label="Format">
        <Select value={format} onChange={(event) => setFormat(event.target.value as ExportFormat)} options={[{ value: 'csv', label: 'CSV, for spreadsheets' }, { value: 'ndjson', label: 'NDJSON, one row a line' }]} />
      </Field>
      {isRunning && (
        <div className="flex flex-col gap-1" role="status">
          <progress className="w-full accent-accent" aria-label="Exported rows" {...(total !== null && total > 0 && { max: total, value: Math.min(progress, total) })} />
          <span className="text-xs text-muted tabular-nums">
            {integer(progress)}
            {total === null ? ' rows' : ` of ${plural(total, 'row')}`}
          </span>
        </div>
      )}
      <ErrorLine error={error} />
    </Dialog>
  )
}
