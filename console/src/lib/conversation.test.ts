/** The fixtures are the recorded bodies that the gateway's own translation is tested with. */
import { describe, expect, it } from 'vitest'
import { type Part, plainText, readAnswer, requestMessages } from './conversation'

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
  const messages = name.includes('request') ? requestMessages(json(format, name)) : readAnswer(json(format, name))?.messages
  return (messages ?? []).flatMap((message) => message.parts)
}

/** Signatures and ids of a stream may differ from those of a plain answer; what was said may not. */
function said(body: unknown): unknown {
  return readAnswer(body)?.messages.map(({ role, parts: list }) => ({
    role,
    parts: list.map((part) => (part.kind === 'tool_call' ? { name: part.name, arguments: part.arguments } : part)),
  }))
}

describe.each(FORMATS)('%s', (format) => {
  const files = filesOf(format)

  it('reads every recorded request without leaving anything unread', () => {
    for (const name of files.filter((file) => file.endsWith('.request.json'))) {
      const messages = requestMessages(json(format, name))
      expect(messages, name).not.toBeNull()
      const unread = messages?.flatMap((message) => message.parts).filter((part) => part.kind === 'other')
      expect(unread, name).toEqual([])
    }
  })

  it('reads a stream as it reads the same answer in one piece', () => {
    const streams = files.filter((file) => file.endsWith('.stream.txt'))
    expect(streams.length).toBeGreaterThan(4)
    for (const name of streams) {
      const plain = name.replace('.stream.txt', '.response.json')
      if (!files.includes(plain) || /error/.test(name)) continue
      expect(said(raw(format, name)), name).toEqual(said(json(format, plain)))
    }
  })

  it('shows what came of a stream that was cut off anywhere', () => {
    const stream = raw(format, 'text.stream.txt')
    const whole = readAnswer(stream)?.messages.map(plainText).join('') ?? ''
    expect(whole).not.toBe('')
    for (let end = 0; end < stream.length; end += 37) {
      const text = readAnswer(stream.slice(0, end))?.messages.map(plainText).join('') ?? ''
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

  it('keeps thoughts apart from the answer', () => {
    const answer = parts(format, 'thinking.response.json')
    const texts = answer.flatMap((part) => (part.kind === 'text' ? [part.text] : []))
    expect(texts).toHaveLength(1)
    expect(texts[0]).toMatch(/^391/)
    expect(answer.some((part) => part.kind === 'reasoning')).toBe(true)
  })

  it('puts the system text first', () => {
    const messages = requestMessages(json(format, 'system.request.json')) ?? []
    expect(messages[0]?.role).toBe('system')
    expect(messages.some((message) => message.role === 'user')).toBe(true)
  })

  it('turns inline pictures into data URLs, and leaves addresses as they are', () => {
    const inline = parts(format, 'image_inline.request.json').filter((part) => part.kind === 'image')
    expect(inline[0]?.url).toMatch(/^data:image\/png;base64,/)
    const linked = parts(format, 'image.request.json').filter((part) => part.kind === 'image' || part.kind === 'file')
    expect(linked.length).toBeGreaterThan(0)
  })

  it('says what the provider said when it failed', () => {
    const { body } = json(format, 'error.response.json') as { body: { error: { message: string } } }
    expect(readAnswer(body)?.error).toBe(body.error.message)
    expect(readAnswer(raw(format, 'error.stream.txt'))?.error).toBeTruthy()
  })
})

it('tells why an answer ended', () => {
  const finishes = FORMATS.map((format) => readAnswer(json(format, 'length.response.json'))?.finish)
  expect(finishes).toEqual(['length', 'max_output_tokens', 'max_tokens', 'MAX_TOKENS'])
})

it('takes nothing for a conversation that is none', () => {
  for (const body of [null, 7, 'plain text', { input: ['a'], encoding_format: 'float' }, { data: [] }, {}]) {
    expect(requestMessages(body)).toBeNull()
    expect(readAnswer(body)).toBeNull()
  }
})

it('keeps what it does not know', () => {
  const [message] = requestMessages({ messages: [{ role: 'user', content: [{ type: 'hologram', size: 3 }] }] }) ?? []
  expect(message?.parts).toEqual([{ kind: 'other', value: { type: 'hologram', size: 3 } }])
})
