import { FileUp } from 'lucide-react'
import { useRef, useState, type DragEvent } from 'react'
import type { Schemas } from '@/api/client'
import { asApiError, isRecord, type ApiError } from '@/api/error'
import { upload } from '@/api/upload'
import { cx } from '@/lib/cx'
import { bytes, plural } from '@/lib/format'
import { FILE_TYPES, detectFormat, guessMapping, needsNoMapping, loadFile, mapRows, type InvalidRow, type FileFormat, type LoadedFile, type ColumnMapping } from '@/lib/importFile'
import { Button, Dialog, ErrorLine, Field, Select, toast } from '@/ui'
import { ImportPreview } from './ImportPreview'

interface ImportProps {
  dataset: Schemas['Dataset']
  onClose(): void
  onDone(): Promise<void>
}

interface Chosen {
  name: string
  text: string
  file: LoadedFile
  mapping: ColumnMapping
}

/** Imports a file of cases: preview, column mapping and upload with progress. The import is all or nothing. */
export function Import({ dataset, onClose, onDone }: ImportProps) {
  const [chosen, setChosen] = useState<Chosen | null>(null)
  const [share, setShare] = useState<number | null>(null)
  const [error, setError] = useState<ApiError | null>(null)
  const stop = useRef<AbortController | null>(null)

  const load = (name: string, text: string, format: FileFormat) => {
    const file = loadFile(text, format)
    setChosen({ name, text, file, mapping: guessMapping(file.columns) })
    setError(null)
  }
  const choose = async (picked: File | undefined) => {
    if (!picked) return
    const text = await picked.text()
    load(picked.name, text, detectFormat(picked.name, text))
  }
  const send = async () => {
    if (!chosen) return
    const { file, mapping, text } = chosen
    const plain = needsNoMapping(file, mapping)
    stop.current = new AbortController()
    setShare(0)
    setError(null)
    try {
      const response = await upload({
        path: `/api/v1/datasets/${dataset.id}/import`,
        type: plain ? FILE_TYPES[file.format] : FILE_TYPES.ndjson,
        body: plain ? text : mapRows(file, mapping),
        signal: stop.current.signal,
        onProgress: setShare,
      })
      await onDone()
      toast(`${plural(Number(response['imported'] ?? 0), 'case')} imported`)
      onClose()
    } catch (failure) {
      if (!stop.current.signal.aborted) setError(asApiError(failure))
    } finally {
      setShare(null)
    }
  }
  const close = () => {
    stop.current?.abort()
    onClose()
  }
  const refused = chosen && error ? invalidRows(error, chosen) : null
  const invalid = refused?.rows ?? chosen?.file.invalid ?? []
  const blocked = !chosen ? 'Choose a file first' : chosen.file.rows.length === 0 ? 'The file has no rows' : chosen.mapping.input === '' ? 'Choose the input column' : false
  return (
    <Dialog
      open
      size="lg"
      onClose={close}
      title={`Import into ${dataset.name}`}
      description="CSV, JSON or JSON lines, in UTF-8. All rows are imported, or none."
      onSubmit={() => void send()}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind="primary" type="submit" busy={share !== null} blocked={blocked}>
            {chosen ? `Import ${plural(chosen.file.rows.length, 'row')}` : 'Import'}
          </Button>
        </>
      }
    >
      <FileField name={chosen?.name} size={chosen?.text.length} onChoose={(file) => void choose(file)} />
      {chosen && (
        <>
          <div className="grid grid-cols-3 gap-3 max-sm:grid-cols-1">
            <Field label="Format">
              <Select value={chosen.file.format} onChange={(event) => load(chosen.name, chosen.text, event.target.value as FileFormat)} options={[{ value: 'csv', label: 'CSV' }, { value: 'json', label: 'JSON' }, { value: 'ndjson', label: 'JSON lines' }]} />
            </Field>
            <Field label="Input">
              <Select value={chosen.mapping.input} onChange={(event) => setChosen({ ...chosen, mapping: { ...chosen.mapping, input: event.target.value } })} options={chosen.file.columns} />
            </Field>
            <Field label="Expected">
              <Select value={chosen.mapping.expected} onChange={(event) => setChosen({ ...chosen, mapping: { ...chosen.mapping, expected: event.target.value } })} options={[{ value: '', label: 'nothing' }, ...chosen.file.columns]} />
            </Field>
          </div>
          <ImportPreview file={chosen.file} mapping={chosen.mapping} invalid={invalid} more={refused?.more ?? 0} />
        </>
      )}
      {share !== null && <Progress share={share} />}
      {error && !refused && <ErrorLine error={error} />}
    </Dialog>
  )
}

function FileField({ name, size, onChoose }: { name: string | undefined; size: number | undefined; onChoose(file: File | undefined): void }) {
  const [over, setOver] = useState(false)
  const drop = (event: DragEvent) => {
    event.preventDefault()
    setOver(false)
    onChoose(event.dataTransfer.files[0])
  }
  return (
    <label
      className={cx('flex cursor-pointer flex-col items-center gap-1 rounded-md border border-dashed px-4 py-5 text-center focus-within:outline-2 focus-within:outline-accent', over ? 'border-accent bg-accent-soft' : 'border-line-strong')}
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <FileUp size={20} className="text-muted" aria-hidden />
      <span>{name ? `${name}, ${bytes(size)}` : 'Drop a file here, or choose one'}</span>
      <input type="file" className="sr-only" aria-label="File" accept=".csv,.json,.ndjson,.jsonl,text/csv,application/json" onChange={(event) => onChoose(event.target.files?.[0])} />
    </label>
  )
}

function Progress({ share }: { share: number }) {
  const percent = Math.round(share * 100)
  return (
    <div className="flex items-center gap-3">
      <div role="progressbar" aria-label="Import" aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100} className="h-2 flex-1 overflow-hidden rounded-full bg-line">
        <div className={cx('h-full rounded-full bg-accent', share === 1 && 'pulse')} style={{ width: `${percent}%` }} />
      </div>
      <span className="w-32 text-right text-xs text-muted tabular-nums" role="status">
        {share < 1 ? `${percent}% sent` : 'Uploaded, saving…'}
      </span>
    </div>
  )
}

/** Invalid rows reported by the server, with line numbers of the selected file. */
function invalidRows(error: ApiError, chosen: Chosen): { rows: InvalidRow[]; more: number } | null {
  const errors = error.details['errors']
  if (!Array.isArray(errors)) return null
  const plain = needsNoMapping(chosen.file, chosen.mapping)
  const rows = errors.filter(isRecord).map((row) => {
    const line = Number(row['line'])
    return { line: plain ? line : (chosen.file.rows[line - 1]?.line ?? line), message: String(row['message']) }
  })
  return { rows, more: Number(error.details['more_errors'] ?? 0) }
}
