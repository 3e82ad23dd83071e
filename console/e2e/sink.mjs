/** A stub receiver for webhooks and exports: records requests and returns a configurable response. */
import { createServer } from 'node:http'
import { after, before } from 'node:test'

/** Starts the stub before the tests of a file and stops it afterwards. `status` and `body` set its response. */
export function setUpSink() {
  const sink = { url: '', status: 200, body: '{"ok":true}', requests: [] }
  let server
  before(async () => {
    server = createServer((request, response) => {
      const chunks = []
      request.on('data', (chunk) => chunks.push(chunk))
      request.on('end', () => {
        const body = Buffer.concat(chunks)
        sink.requests.push({ method: request.method, url: request.url, headers: request.headers, body })
        response.writeHead(sink.status, { 'Content-Type': 'application/json' }).end(sink.body)
      })
    })
    await new Promise((done) => server.listen(0, '127.0.0.1', done))
    sink.url = `http://127.0.0.1:${server.address().port}`
  })
  after(() => {
    server.closeAllConnections()
    return new Promise((done) => server.close(done))
  })
  return sink
}
