import type { Schemas } from '@/api/client'
import { Status, type Tone } from '@/ui'

const STATES: Readonly<Record<string, { tone: Tone; word: string; about: string }>> = {
  ok: { tone: 'ok', word: 'ok', about: 'The server answers.' },
  stale: { tone: 'muted', word: 'not connected yet', about: 'Its tools are read with the next request, or with Refresh.' },
  down: { tone: 'err', word: 'down', about: 'The server does not answer. Agents see its last list for a day.' },
  auth_required: { tone: 'warn', word: 'needs credentials', about: 'The server refused the stored credentials.' },
  changed: { tone: 'warn', word: 'changed tools', about: 'Tools are new or have changed, and are hidden until they are approved.' },
}

export function ServerState({ server }: { server: Schemas['McpServer'] }) {
  if (!server.enabled) return <Status tone="muted">off</Status>
  const { state, last_error } = server.status
  const { tone, word, about } = STATES[state] ?? { tone: 'muted' as const, word: state, about: '' }
  return (
    <Status tone={tone} title={last_error ?? about}>
      {word}
    </Status>
  )
}
