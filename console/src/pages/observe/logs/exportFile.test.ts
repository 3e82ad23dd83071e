import { afterEach, expect, test, vi } from 'vitest'
import { ApiError } from '@/api/error'
import { doubtAbout, exportCommand, exportFile, exportPath, LineCounter, MAX_FILE_ROWS, MemorySink, type ExportRequest, type Progress } from './exportFile'

const encode = (text: string) => new TextEncoder().encode(text)
const REQUEST: ExportRequest = { query: { query: "status:error it's", from: '2026-01-01T00:00:00Z' }, format: 'csv', bodies: false }

afterEach(() => vi.unstubAllGlobals())

/** A response of these chunks, which ends with an error if there is one. */
function serve(chunks: string[], error?: Error) {
  const left = chunks.map(encode)
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const next = left.shift()
      if (next) controller.enqueue(next)
      else if (error) controller.error(error)
      else controller.close()
    },
  })
  const fetched = vi.fn(async (..._: unknown[]) => new Response(body))
  vi.stubGlobal('fetch', fetched)
  return fetched
}

function sink() {
  const kept = { text: '', closed: false, aborted: false }
  return {
    kept,
    write: async (chunk: Uint8Array) => void (kept.text += new TextDecoder().decode(chunk)),
    close: async () => void (kept.closed = true),
    abort: async () => void (kept.aborted = true),
  }
}

test('the file is streamed with its progress, which counts rows and bytes', async () => {
  const fetched = serve(['id,preview\n1,"two\nli', 'nes ""quoted"""\n2,x\n'])
  const target = sink()
  const seen: Progress[] = []
  const done = await exportFile(REQUEST, { sink: target, signal: new AbortController().signal, onProgress: (progress) => seen.push(progress) })
  expect(done).toEqual({ rows: 2, bytes: 40 })
  expect(seen.map((one) => one.rows)).toEqual([0, 2])
  expect(target.kept).toEqual({ text: 'id,preview\n1,"two\nlines ""quoted"""\n2,x\n', closed: true, aborted: false })
  expect(String(fetched.mock.calls[0]?.[0])).toBe(exportPath(REQUEST))
})

test('a download that is cut fails, says how far it came, and nothing of it is kept', async () => {
  serve(['id\n1\n2\n'], new TypeError('network error'))
  const target = sink()
  const failure = exportFile(REQUEST, { sink: target, signal: new AbortController().signal, onProgress: () => undefined })
  await expect(failure).rejects.toThrow('The download was cut after 2 rows (7 B)')
  expect([target.kept.closed, target.kept.aborted]).toEqual([false, true])
})

test('a stopped download is aborted without an error of its own', async () => {
  const controller = new AbortController()
  serve(['id\n1\n'], new DOMException('stopped', 'AbortError'))
  const target = sink()
  const failure = exportFile(REQUEST, { sink: target, signal: controller.signal, onProgress: () => controller.abort() })
  await expect(failure).rejects.not.toBeInstanceOf(ApiError)
  expect(target.kept.aborted).toBe(true)
})

test('an error before the first byte is that of the API', async () => {
  vi.stubGlobal('fetch', async () => Response.json({ code: 'bad_request', message: 'sort: too many rows' }, { status: 400 }))
  const target = sink()
  const failure = exportFile(REQUEST, { sink: target, signal: new AbortController().signal, onProgress: () => undefined })
  await expect(failure).rejects.toMatchObject({ status: 400, fields: { sort: 'too many rows' } })
  expect(target.kept.aborted).toBe(true)
})

test('without access to files the size is bounded, and the command is named', async () => {
  serve(['123', '4567', '8'])
  const save = vi.fn()
  const failure = exportFile({ ...REQUEST, format: 'ndjson' }, { sink: new MemorySink(save, 7), signal: new AbortController().signal, onProgress: () => undefined })
  await expect(failure).rejects.toThrow(/larger than 7 B.*Run the command/)
  expect(save).not.toHaveBeenCalled()
  const small = new MemorySink(save, 7)
  await small.write(encode('1234567'))
  await small.close()
  expect(save).toHaveBeenCalledTimes(1)
})

test('the command downloads the same rows', () => {
  const command = exportCommand({ ...REQUEST, bodies: true }, 'https://gateway.example')
  expect(command).toBe(
    `curl -f -H "X-Gateway-Key: $GATEWAY_KEY" 'https://gateway.example/api/v1/logs/export?format=csv&query=status%3Aerror+it%27s&from=2026-01-01T00%3A00%3A00Z&bodies=true' -o logs.csv`,
  )
})

test('lines of NDJSON are counted with quotes in them', () => {
  const counter = new LineCounter('ndjson')
  counter.add(encode('{"a":"\\""}\n{"a'))
  counter.add(encode('":1}\n'))
  expect(counter.rows).toBe(2)
})

test('a file with fewer rows than the page counted, or with as many as fit, is not trusted', () => {
  expect(doubtAbout({ rows: 10, bytes: 1 }, 10)).toBeNull()
  expect(doubtAbout({ rows: 11, bytes: 1 }, 10)).toBeNull()
  expect(doubtAbout({ rows: 0, bytes: 1 }, null)).toBeNull()
  expect(doubtAbout({ rows: 9, bytes: 1 }, 10)).toContain('10 were counted')
  expect(doubtAbout({ rows: MAX_FILE_ROWS, bytes: 1 }, null)).toContain('at most 1,000,000 rows')
})
