import { useNavigate } from '@tanstack/react-router'
import { Activity, BookText, Boxes, Database, FlaskConical, KeyRound, LibraryBig, MessagesSquare, Moon, Plug, Rocket, Scale, Search, Send, Sparkles, UserRound, Waypoints, type LucideIcon } from 'lucide-react'
import { Dialog as Radix } from 'radix-ui'
import { useId, useMemo, useState, type KeyboardEvent } from 'react'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { searchText, term } from '@/lib/query'
import { cycleTheme } from '@/lib/prefs'
import { NAV } from './nav'

interface Entry {
  name: string
  hint: string
  icon: LucideIcon
  run(): void
}

/** Named things that are listed at most. */
const MAX_NAMED = 8

/** Command palette: finds pages and everything that has a name (prompts, models, skills, keys, …) by name, and logs, keys and sessions by id or text. */
export function Palette({ onClose }: { onClose(): void }) {
  const navigate = useNavigate()
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const list = useId()
  const named = useNamed(text.trim().length > 1)
  const entries = useMemo(() => {
    const go = (to: string, search: Record<string, string> = {}) => () => void navigate({ to, search: search as never })
    const pages: Entry[] = NAV.flatMap((group) => group.items.map((item) => ({ name: item.name, hint: group.name, icon: item.icon, run: go(item.to) })))
    const rest: Entry[] = [
      { name: 'Shelf', hint: 'Skills to copy', icon: LibraryBig, run: go('/shelf') },
      { name: 'Rubric', hint: 'How skills are scored', icon: Scale, run: go('/skills/rubric') },
      { name: 'First steps', hint: 'Key, snippet, first request', icon: Rocket, run: go('/start') },
      { name: 'Change theme', hint: 'System, light, dark', icon: Moon, run: cycleTheme },
    ]
    const input = text.trim()
    const words = input.toLowerCase()
    const things: Entry[] = words.length < 2 ? [] : named.filter((one) => one.name.toLowerCase().includes(words)).slice(0, MAX_NAMED).map(({ to, search, ...one }) => ({ ...one, run: go(to, search) }))
    return [...idMatches(input, go), ...[...pages, ...rest].filter((entry) => `${entry.name} ${entry.hint}`.toLowerCase().includes(words)), ...things, ...textSearches(input, go)]
  }, [text, navigate, named])
  const chosen = Math.min(at, entries.length - 1)
  const run = (entry: Entry | undefined) => {
    onClose()
    entry?.run()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
    if (step !== 0) {
      event.preventDefault()
      setAt((chosen + step + entries.length) % Math.max(1, entries.length))
    } else if (event.key === 'Enter') {
      event.preventDefault()
      run(entries[chosen])
    }
  }
  return (
    <Radix.Root open onOpenChange={(next) => !next && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="scrim" />
        <Radix.Content data-modal="true" aria-describedby={undefined} className="fixed top-[10vh] left-1/2 z-50 flex max-h-[70vh] w-[min(560px,calc(100vw-24px))] -translate-x-1/2 flex-col rounded-md border border-line bg-raised shadow-float">
          <Radix.Title className="sr-only">Search or jump</Radix.Title>
          <div className="flex items-center gap-2 border-b border-line px-3">
            <Search size={16} className="text-muted" aria-hidden />
            <input
              className="h-11 w-full bg-transparent text-base outline-none"
              placeholder="Page, prompt, model, key, log id, words…"
              role="combobox"
              aria-label="Search or jump"
              aria-expanded
              aria-controls={list}
              aria-activedescendant={`${list}-${chosen}`}
              spellCheck={false}
              autoComplete="off"
              autoFocus
              value={text}
              onChange={(event) => {
                setText(event.target.value)
                setAt(0)
              }}
              onKeyDown={onKeyDown}
            />
          </div>
          <div id={list} role="listbox" aria-label="Results" className="overflow-y-auto p-1">
            {entries.map((entry, index) => (
              <div key={`${entry.name} ${entry.hint}`} id={`${list}-${index}`} role="option" aria-selected={index === chosen} className="popup-item" onClick={() => run(entry)} onMouseMove={() => setAt(index)}>
                <entry.icon size={15} className="shrink-0 text-muted" aria-hidden />
                <span className="name truncate">{entry.name}</span>
                <span className="ml-auto shrink-0 text-xs text-muted">{entry.hint}</span>
              </div>
            ))}
            {entries.length === 0 && <p className="px-3 py-4 text-muted">Nothing found</p>}
          </div>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

interface Named {
  name: string
  hint: string
  icon: LucideIcon
  to: string
  search?: Record<string, string>
}

/** Everything of the organization that has a name, loaded with the first letters. */
function useNamed(enabled: boolean): Named[] {
  const options = { enabled, staleTime: 60_000, retry: false, meta: { quiet: true } }
  // Must differ from the limit of the list of prompts: the cache key must not mix infinite and plain queries.
  const params = { params: { query: { limit: 199 } } }
  const prompts = api.useQuery('get', '/api/v1/prompts', params, options)
  const datasets = api.useQuery('get', '/api/v1/datasets', params, options)
  const evals = api.useQuery('get', '/api/v1/evals', params, options)
  const keys = api.useQuery('get', '/api/v1/keys', params, options)
  const me = useMe()
  const inOrg = { params: { path: { orgId: me.orgId }, ...params.params } }
  const models = api.useQuery('get', '/api/v1/orgs/{orgId}/models', inOrg, options)
  const providers = api.useQuery('get', '/api/v1/orgs/{orgId}/providers', inOrg, options)
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', inOrg, options)
  const skills = api.useQuery('get', '/api/v1/skills', params, { ...options, enabled: enabled && me.hasEntitlement('skill_marketplace') })
  const webhooks = api.useQuery('get', '/api/v1/webhooks', params, { ...options, enabled: enabled && me.hasEntitlement('webhooks') })
  return useMemo(
    () => [
      ...(prompts.data?.prompts ?? []).map((one) => ({ name: `${one.namespace}/${one.slug}`, hint: 'Prompt', icon: BookText, to: `/prompts/${one.namespace}/${one.slug}` })),
      ...(datasets.data?.datasets ?? []).map((one) => ({ name: one.name, hint: 'Dataset', icon: Database, to: `/datasets/${one.id}` })),
      ...(evals.data?.evals ?? []).map((one) => ({ name: one.name, hint: 'Eval', icon: FlaskConical, to: `/evals/${one.id}` })),
      ...(keys.data?.keys ?? []).filter((one) => one.revoked_at === null).map((one) => ({ name: one.name, hint: 'Key', icon: KeyRound, to: '/keys', search: { q: one.name } })),
      ...(models.data?.models ?? []).map((one) => ({ name: one.name, hint: 'Model', icon: Waypoints, to: `/models/${one.id}` })),
      ...(skills.data?.skills ?? []).map((one) => ({ name: one.name, hint: 'Skill', icon: Sparkles, to: `/skills/${one.id}` })),
      ...(providers.data?.providers ?? []).map((one) => ({ name: one.name, hint: 'Provider', icon: Plug, to: '/providers', search: { q: one.name } })),
      ...(webhooks.data?.webhooks ?? []).map((one) => ({ name: one.url, hint: 'Webhook', icon: Send, to: `/webhooks/${one.id}` })),
      ...(apps.data?.apps ?? []).map((one) => ({ name: one.name, hint: 'Application', icon: Boxes, to: '/org/apps' })),
    ],
    [prompts.data, datasets.data, evals.data, keys.data, models.data, skills.data, providers.data, webhooks.data, apps.data],
  )
}

type Go = (to: string, search?: Record<string, string>) => () => void

/** Direct matches for a pasted id. */
function idMatches(input: string, go: Go): Entry[] {
  if (/^\d{6,}$/.test(input)) return [{ name: `Log ${input}`, hint: 'Open', icon: Activity, run: go('/logs', { log: input }) }]
  if (/^sk-gateway-[0-9a-f]{1,8}/.test(input)) return [{ name: `Key ${input.slice(0, 19)}`, hint: 'Open', icon: KeyRound, run: go('/keys', { q: input.slice(0, 19) }) }]
  if (/^auto-\d+$/.test(input)) return [{ name: `Session ${input}`, hint: 'Open', icon: MessagesSquare, run: go(`/sessions/${input}`) }]
  return []
}

/** Searches that accept any text. */
function textSearches(input: string, go: Go): Entry[] {
  if (input.length < 2) return []
  return [
    { name: `Logs with “${input}”`, hint: 'Search messages', icon: Search, run: go('/logs', { query: searchText(input) }) },
    { name: `Session ${input}`, hint: 'Open', icon: MessagesSquare, run: go(`/sessions/${encodeURIComponent(input)}`) },
    { name: `Requests of user ${input}`, hint: 'Logs', icon: UserRound, run: go('/logs', { query: term('user', input) }) },
  ]
}
