import { useEffect, useRef, useState } from 'react'
import type { LogRow } from '@/api/logs'
import { asApiError, type ApiError } from '@/api/error'
import { download } from '@/lib/download'
import { bytes, integer, plural } from '@/lib/format'
import { Button, Checkbox, CopyButton, Dialog, ErrorLine, Field, Select, toast, toastWarning } from '@/ui'
import { doubtAbout, exportCommand, exportFile, exportName, hasSavePicker, MAX_FILE_ROWS, MAX_MEMORY_BYTES, openSink, type ExportRequest, type Progress, type RowQuery } from './exportFile'
import { formatRows, type ExportFormat } from './exportRows'
import { useMatching } from './useMatching'

interface ExportDialogProps {
  query: RowQuery
  /** The chosen rows; all matching rows without any. */
  selected: readonly LogRow[]
  onClose(): void
}

const FORMATS = [
  { value: 'csv', label: 'CSV, for spreadsheets' },
  { value: 'ndjson', label: 'NDJSON, one row a line' },
]

export function ExportDialog({ query, selected, onClose }: ExportDialogProps) {
  const [format, setFormat] = useState<ExportFormat>('csv')
  if (selected.length === 0) return <ExportAll query={query} format={format} onFormat={setFormat} onClose={onClose} />
  const save = () => {
    download(exportName(format), 'text/plain', formatRows(selected, format))
    onClose()
  }
  return (
    <Dialog
      open
      size="sm"
      onClose={onClose}
      title={`Export ${plural(selected.length, 'selected row')}`}
      onSubmit={save}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit">
            Export
          </Button>
        </>
      }
    >
      <FormatField format={format} onFormat={setFormat} />
    </Dialog>
  )
}

function FormatField({ format, onFormat, disabled }: { format: ExportFormat; onFormat(format: ExportFormat): void; disabled?: boolean }) {
  return (
    <Field label="Format">
      <Select value={format} disabled={disabled} onChange={(event) => onFormat(event.target.value as ExportFormat)} options={FORMATS} />
    </Field>
  )
}

function ExportAll({ query, format, onFormat, onClose }: { query: RowQuery; format: ExportFormat; onFormat(format: ExportFormat): void; onClose(): void }) {
  const matching = useMatching(query, true)
  const [withBodies, setWithBodies] = useState(false)
  const [progress, setProgress] = useState<Progress | null>(null)
  const [error, setError] = useState<ApiError | null>(null)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])
  const request: ExportRequest = { query, format, bodies: withBodies }

  const start = async () => {
    const controller = new AbortController()
    setError(null)
    try {
      const sink = await openSink(format)
      if (!sink) return
      running.current = controller
      setProgress({ rows: 0, bytes: 0 })
      const done = await exportFile(request, { sink, signal: controller.signal, onProgress: setProgress })
      const doubt = doubtAbout(done, matching)
      const exported = `Exported ${plural(done.rows, 'row')} (${bytes(done.bytes)})`
      if (doubt) toastWarning(`${exported}. ${doubt}`)
      else toast(exported)
      onClose()
    } catch (failure) {
      if (!controller.signal.aborted) setError(asApiError(failure))
      setProgress(null)
    }
  }
  const stop = () => {
    if (progress === null) return onClose()
    running.current?.abort()
    setProgress(null)
  }
  const total = matching === null ? null : Math.min(matching, MAX_FILE_ROWS)
  return (
    <Dialog
      open
      size="sm"
      onClose={onClose}
      title="Export all matching rows"
      description={`${matching === null ? 'The rows' : plural(matching, 'row')} of the current query and time range; at most ${integer(MAX_FILE_ROWS)}.`}
      onSubmit={() => void start()}
      actions={
        <>
          <Button onClick={stop}>{progress === null ? 'Cancel' : 'Stop'}</Button>
          <Button kind="primary" type="submit" busy={progress !== null}>
            Export
          </Button>
        </>
      }
    >
      <FormatField format={format} onFormat={onFormat} disabled={progress !== null} />
      <Checkbox checked={withBodies} disabled={progress !== null} onChange={(event) => setWithBodies(event.target.checked)} label="With request and response bodies" hint="Makes the file many times larger." />
      {!hasSavePicker() && <p className="text-xs text-muted">This browser keeps the file in memory until it is complete: at most {bytes(MAX_MEMORY_BYTES)}.</p>}
      {progress && <Running progress={progress} total={total} />}
      <ErrorLine error={error} />
      <div className="flex flex-wrap items-center gap-2 text-xs text-muted">
        <span>Outside of the browser:</span>
        <CopyButton value={() => exportCommand(request, location.origin)} label="Copy the curl command" text="curl command" />
      </div>
    </Dialog>
  )
}

function Running({ progress, total }: { progress: Progress; total: number | null }) {
  return (
    <div className="flex flex-col gap-1" role="status">
      {total !== null && total > 0 && (
        <div role="progressbar" aria-label="Exported rows" aria-valuenow={Math.min(progress.rows, total)} aria-valuemin={0} aria-valuemax={total} className="h-2 overflow-hidden rounded-full bg-line">
          <div className="h-full bg-accent" style={{ width: `${Math.min(100, (100 * progress.rows) / total)}%` }} />
        </div>
      )}
      <span className="text-xs text-muted tabular-nums">
        {integer(progress.rows)}
        {total === null ? ' rows' : ` of ${plural(total, 'row')}`}, {bytes(progress.bytes)}
      </span>
    </div>
  )
}
