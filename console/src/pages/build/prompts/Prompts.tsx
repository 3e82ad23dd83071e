import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { BookText, Plus } from 'lucide-react'
import { useState } from 'react'
import type { Schemas } from '@/api/client'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { Badge, Button, Code, Empty, ErrorPanel, Input, NoMatch, Page, Pager, Section, SkeletonRows, Table, type Column } from '@/ui'
import { NewPrompt } from './NewPrompt'
import { byNamespace, usePrompts } from './usePrompts'

const route = getRouteApi('/shell/prompts')
type Prompt = Schemas['Prompt']

/** List of prompts by namespace. */
export function Prompts() {
  const { q = '' } = route.useSearch()
  const navigate = useNavigate()
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const [creating, setCreating] = useState(false)
  const { list, prompts } = usePrompts()
  const words = q.toLowerCase().split(/\s+/).filter(Boolean)
  const found = prompts.filter((prompt) => words.every((word) => `${prompt.namespace}/${prompt.slug} ${prompt.content}`.toLowerCase().includes(word)))
  const search = (next: string) => void navigate({ to: '/prompts', search: { q: next || undefined }, replace: true })
  const columns: Column<Prompt>[] = [
    { key: 'slug', header: 'Prompt', className: 'name max-w-64 truncate', cell: (row) => <code>{row.slug}</code> },
    { key: 'content', header: 'Text', className: 'max-w-[40vw] truncate text-muted', from: 'md', cell: (row) => row.content.slice(0, 160) },
    { key: 'variables', header: 'Variables', className: 'max-w-64 truncate', from: 'sm', cell: (row) => <code title={row.variables.join(', ')}>{row.variables.join(', ') || '–'}</code> },
    {
      key: 'labels',
      header: 'Labels',
      from: 'sm',
      cell: (row) => (
        <span className="flex flex-wrap gap-1">
          {Object.entries(row.labels).map(([label, version]) => (
            <Badge key={label} tone="accent">
              {label} v{version}
            </Badge>
          ))}
        </span>
      ),
    },
    { key: 'version', header: 'Version', number: true, cell: (row) => row.version },
    { key: 'updated', header: 'Changed', cell: (row) => <time dateTime={row.updated_at} title={time(row.updated_at, zone, 'full')} className="whitespace-nowrap">{ago(row.updated_at, now)}</time> },
  ]
  const create = (
    <Button kind="primary" needs="member" icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
      New prompt
    </Button>
  )
  return (
    <Page title="Prompts" about="Versioned templates with variables, rendered by the gateway" actions={prompts.length > 0 && create}>
      {list.isError ? (
        <ErrorPanel error={list.error} what="the prompts" onRetry={() => void list.refetch()} />
      ) : !list.data ? (
        <Section flush>
          <SkeletonRows rows={8} />
        </Section>
      ) : prompts.length === 0 ? (
        <Empty
          icon={<BookText size={24} aria-hidden />}
          title="No prompts yet"
          action={create}
          more={<Code label="Call a model with a prompt" code={`curl ${location.origin}/v1/chat/completions \\\n  -H "X-Gateway-Key: YOUR_KEY" -H "X-Gateway-Provider: sandbox" \\\n  -H "X-Gateway-Prompt: support/greeting" \\\n  -d '{"model": "sandbox-small", "messages": []}'`} />}
        >
          A prompt has a name, variables such as <code>{'{{customer}}'}</code> and versions, so you can change it without redeploying.
        </Empty>
      ) : (
        <>
          <Input type="search" aria-label="Find a prompt" placeholder="Name or words of the text" className="max-w-72" value={q} onChange={(event) => search(event.target.value)} />
          {found.length === 0 ? (
            <NoMatch what="prompts" onClear={() => search('')} />
          ) : (
            byNamespace(found).map(([namespace, rows]) => (
              <Section key={namespace} flush title={<code>{namespace}/</code>}>
                <Table label={`Prompts in ${namespace}`} columns={columns} rows={rows} rowKey={(row) => row.id} onOpen={(row) => void navigate({ to: '/prompts/$namespace/$slug', params: row })} />
              </Section>
            ))
          )}
          {list.hasNextPage && <Pager shown={prompts.length} what="prompts" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
      {creating && <NewPrompt onClose={() => setCreating(false)} />}
    </Page>
  )
}
