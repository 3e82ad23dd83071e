/**
 * All rows that match a query as a file, streamed from the API: to disk where the browser lets a page write files, else
 * into memory up to a limit. A download that ends early fails, so that a part never looks like the whole.
 */
import { ApiError, asApiError, OFFLINE } from '@/api/error'
import { openStream } from '@/api/stream'
import { downloadParts } from '@/lib/download'
import { bytes, plural } from '@/lib/format'
import type { ExportFormat } from './exportRows'

export interface RowQuery {
  query?: string | undefined
  sort?: string | undefined
  from: string
  to?: string | undefined
}

export interface ExportRequest {
  query: RowQuery
  format: ExportFormat
  bodies: boolean
}

export interface Progress {
  rows: number
  bytes: number
}

/** What the API sends at most in one file. */
export const MAX_FILE_ROWS = 1_000_000
/** More would not fit into the memory of a tab. */
export const MAX_MEMORY_BYTES = 256 * 1024 * 1024

/** Where the bytes go. */
export interface Sink {
  write(chunk: Uint8Array<ArrayBuffer>): Promise<void>
  /** The file is complete. */
  close(): Promise<void>
  /** Nothing of it is kept. */
  abort(): Promise<void>
}

interface FileHandle {
  createWritable(): Promise<Sink>
}
type SavePicker = (options: { suggestedName: string; types: { description: string; accept: Record<string, string[]> }[] }) => Promise<FileHandle>

const TYPES: Record<ExportFormat, { type: string; about: string }> = {
  csv: { type: 'text/csv', about: 'CSV' },
  ndjson: { type: 'application/x-ndjson', about: 'NDJSON' },
}

export function exportName(format: ExportFormat): string {
  return `logs.${format}`
}

/** Whether files of any size can be written. */
export function hasSavePicker(): boolean {
  return 'showSaveFilePicker' in globalThis
}

/** Asks where to save the file. Must be called by a click, before anything is awaited. Null if the user cancels. */
export async function openSink(format: ExportFormat): Promise<Sink | null> {
  const { type, about } = TYPES[format]
  const picker = (globalThis as { showSaveFilePicker?: SavePicker }).showSaveFilePicker
  if (!picker) return new MemorySink((parts) => downloadParts(exportName(format), type, parts))
  try {
    const file = await picker({ suggestedName: exportName(format), types: [{ description: about, accept: { [type]: [`.${format}`] } }] })
    return await file.createWritable()
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') return null
    throw error
  }
}

export class MemorySink implements Sink {
  private parts: Uint8Array<ArrayBuffer>[] = []
  private size = 0
  private readonly save: (parts: Uint8Array<ArrayBuffer>[]) => void
  private readonly limit: number

  constructor(save: (parts: Uint8Array<ArrayBuffer>[]) => void, limit = MAX_MEMORY_BYTES) {
    this.save = save
    this.limit = limit
  }

  async write(chunk: Uint8Array<ArrayBuffer>): Promise<void> {
    this.size += chunk.length
    if (this.size > this.limit) {
      throw new ApiError(OFFLINE, { code: 'too_large', message: `The file is larger than ${bytes(this.limit)}, which this browser cannot save from a page. Run the command below instead, or narrow the query or the range.` })
    }
    this.parts.push(chunk)
  }

  async close(): Promise<void> {
    this.save(this.parts)
    this.parts = []
  }

  async abort(): Promise<void> {
    this.parts = []
  }
}

/** Counts the lines of a file while it passes. In CSV a break inside of quotes belongs to a cell. */
export class LineCounter {
  lines = 0
  private quoted = false
  private readonly csv: boolean

  constructor(format: ExportFormat) {
    this.csv = format === 'csv'
  }

  add(chunk: Uint8Array): void {
    for (const byte of chunk) {
      if (byte === 0x22 && this.csv) this.quoted = !this.quoted
      else if (byte === 0x0a && !this.quoted) this.lines += 1
    }
  }

  /** Without the header. */
  get rows(): number {
    return this.csv ? Math.max(0, this.lines - 1) : this.lines
  }
}

export function exportPath({ query, format, bodies: withBodies }: ExportRequest): string {
  const params = new URLSearchParams({ format })
  for (const [name, value] of Object.entries(query)) if (value) params.set(name, value)
  if (withBodies) params.set('bodies', 'true')
  return `/api/v1/logs/export?${params.toString()}`
}

/** The same download outside of the browser. */
export function exportCommand(request: ExportRequest, origin: string): string {
  return `curl -f -H "X-Gateway-Key: $GATEWAY_KEY" '${origin}${exportPath(request).replaceAll("'", '%27')}' -o ${exportName(request.format)}`
}

interface Run {
  sink: Sink
  signal: AbortSignal
  onProgress(progress: Progress): void
}

/** Streams the file into the sink. On an error, also that of a stopped download, the sink is aborted. */
export async function exportFile(request: ExportRequest, { sink, signal, onProgress }: Run): Promise<Progress> {
  const counter = new LineCounter(request.format)
  const progress: Progress = { rows: 0, bytes: 0 }
  try {
    const body = await openStream(exportPath(request), signal)
    const reader = body.getReader()
    for (;;) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        throw signal.aborted ? error : cutError(progress)
      })
      if (done) break
      counter.add(value)
      progress.rows = counter.rows
      progress.bytes += value.length
      await sink.write(value)
      onProgress({ ...progress })
    }
    await sink.close()
    return progress
  } catch (error) {
    await sink.abort().catch(() => undefined)
    throw error instanceof ApiError || signal.aborted ? error : asApiError(error)
  }
}

function cutError({ rows, bytes: size }: Progress): ApiError {
  return new ApiError(OFFLINE, { code: 'cut', message: `The download was cut after ${plural(rows, 'row')} (${bytes(size)}). Nothing was saved, because a part looks like the whole. Export again, or narrow the query or the range.` })
}

/** What the user must know of a file that is complete as the API sends it; null if there is nothing. `counted` is what the page knew. */
export function doubtAbout({ rows }: Progress, counted: number | null): string | null {
  if (rows >= MAX_FILE_ROWS) return `A file has at most ${MAX_FILE_ROWS.toLocaleString('en-US')} rows. Narrow the query or the range for the rest.`
  if (counted !== null && rows < counted) return `${counted.toLocaleString('en-US')} were counted before: the others were deleted meanwhile, or the export looked at fewer. Export again to be sure.`
  return null
}
