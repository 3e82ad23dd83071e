/** Uses the recorded bodies of the gateway's translation tests. */
import { describe, expect, it } from 'vitest'
import { type Part, plainText, parseResponse, parseRequest } from './conversation'

const FIXTURES = import.meta.glob<string>('../../../crates/gateway-core/fixtures/*/*', { query: '?raw', import: 'default', eager: true })
const FORMATS = ['openai', 'openai-responses', 'anthropic', 'gemini']

function raw(format: string, name: string): string {
  const found = FIXTURES[`../../../crates/gateway-core/fixtures/${format}/${name}`]
  if (found === undefined) throw new Error(`there is no ${format}/${name}`)
  return found
}

function filesOf(format: string): string[] {
  return Object.keys(FIXTURES).flatMap((path) => (path.includes(`/${format}/`) ? [path.split('/').at(-1) ?? ''] : []))
}

function json(format: string, name: string): unknown {
  return JSON.parse(raw(format, name))
}

function parts(format: string, name: string): Part[] {
  const messages = name.includes('request') ? parseRequest(json(format, name)) : parseResponse(json(format, name))?.messages
  return (messages ?? []).flatMap((message) => message.parts)
}

/** Drops signatures and ids, which differ between streamed and plain responses. */
function comparable(body: unknown): unknown {
  return parseResponse(body)?.messages.map(({ role, parts: list }) => ({
    role,
    parts: list.map((part) => (part.kind === 'tool_call' ? { name: part.name, arguments: part.arguments } : part)),
  }))
}

describe.each(FORMATS)('%s', (format) => {
  const files = filesOf(format)

  it('parses every recorded request completely', () => {
    for (const name of files.filter((file) => file.endsWith('.request.json'))) {
      const messages = parseRequest(json(format, name))
      expect(messages, name).not.toBeNull()
      const unread = messages?.flatMap((message) => message.parts).filter((part) => part.kind === 'other')
      expect(unread, name).toEqual([])
    }
  })

  it('parses a stream like the equivalent non-streaming response', () => {
    const streams = files.filter((file) => file.endsWith('.stream.txt'))
    expect(streams.length).toBeGreaterThan(4)
    for (const name of streams) {
      const plain = name.replace('.stream.txt', '.response.json')
      if (!files.includes(plain) || /error/.test(name)) continue
      expect(comparable(raw(format, name)), name).toEqual(comparable(json(format, plain)))
    }
  })

  it('returns the content received before a stream was truncated', () => {
    const stream = raw(format, 'text.stream.txt')
    const whole = parseResponse(stream)?.messages.map(plainText).join('') ?? ''
    expect(whole).not.toBe('')
    for (let end = 0; end < stream.length; end += 37) {
      const text = parseResponse(stream.slice(0, end))?.messages.map(plainText).join('') ?? ''
      expect(whole.startsWith(text), `cut at ${end}: ${text}`).toBe(true)
    }
  })

  it('names the tool, its arguments and its result', () => {
    expect(parts(format, 'tool.response.json')).toContainEqual(
      expect.objectContaining({ kind: 'tool_call', name: 'get_weather', arguments: expect.objectContaining({ city: 'Paris' }) }),
    )
    const results = parts(format, 'tool_result.request.json').filter((part) => part.kind === 'tool_result')
    expect(JSON.stringify(results)).toMatch(/\b18\b/)
  })

  it('separates reasoning from output', () => {
    const response = parts(format, 'thinking.response.json')
    const texts = response.flatMap((part) => (part.kind === 'text' ? [part.text] : []))
    expect(texts).toHaveLength(1)
    expect(texts[0]).toMatch(/^391/)
    expect(response.some((part) => part.kind === 'reasoning')).toBe(true)
  })

  it('puts the system text first', () => {
    const messages = parseRequest(json(format, 'system.request.json')) ?? []
    expect(messages[0]?.role).toBe('system')
    expect(messages.some((message) => message.role === 'user')).toBe(true)
  })

  it('converts inline images to data URLs and keeps remote URLs', () => {
    const inline = parts(format, 'image_inline.request.json').filter((part) => part.kind === 'image')
    expect(inline[0]?.url).toMatch(/^data:image\/png;base64,/)
    const linked = parts(format, 'image.request.json').filter((part) => part.kind === 'image' || part.kind === 'file')
    expect(linked.length).toBeGreaterThan(0)
  })

  it('returns the error message of the provider', () => {
    const { body } = json(format, 'error.response.json') as { body: { error: { message: string } } }
    expect(parseResponse(body)?.error).toBe(body.error.message)
    expect(parseResponse(raw(format, 'error.stream.txt'))?.error).toBeTruthy()
  })
})

it('returns the finish reason', () => {
  const finishes = FORMATS.map((format) => parseResponse(json(format, 'length.response.json'))?.finishReason)
  expect(finishes).toEqual(['length', 'max_output_tokens', 'max_tokens', 'MAX_TOKENS'])
})

it('returns null for a body without a conversation', () => {
  for (const body of [null, 7, 'plain text', { input: ['a'], encoding_format: 'float' }, { data: [] }, {}]) {
    expect(parseRequest(body)).toBeNull()
    expect(parseResponse(body)).toBeNull()
  }
})

it('keeps unknown blocks', () => {
  const [message] = parseRequest({ messages: [{ role: 'user', content: [{ type: 'hologram', size: 3 }] }] }) ?? []
  expect(message?.parts).toEqual([{ kind: 'other', value: { type: 'hologram', size: 3 } }])
})
