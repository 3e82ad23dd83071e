/** Applications group keys, so that usage and budgets can be tracked per application. */
import { Boxes, EllipsisVertical, Pencil, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { apiSnippet } from '@/lib/snippets'
import { Button, Code, ConfirmDialog, Empty, ErrorPanel, Menu, MenuItem, Page, Pager, Section, SkeletonRows, Table, toast, type Column } from '@/ui'
import { AppForm } from './AppForm'

type App = Schemas['Application']

export function Apps() {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const [editing, setEditing] = useState<{ app: App | null } | null>(null)
  const [removing, setRemoving] = useState<App | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/apps', { params: { path: { orgId }, query: { limit: 100 } } }, cursorPaging)
  const teams = api.useQuery('get', '/api/v1/orgs/{orgId}/teams', { params: { path: { orgId }, query: { limit: 200 } } })
  const apps = list.data?.pages.flatMap((page) => page.apps) ?? []
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setEditing({ app: null })}>
      Create application
    </Button>
  )
  const columns: Column<App>[] = [
    {
      key: 'name',
      header: 'Name',
      className: 'name max-w-[1px] w-1/2',
      cell: (app) => (
        <span className="flex min-w-0 flex-col py-1">
          <span className="name truncate font-medium">{app.name}</span>
          {app.description !== '' && <span className="name truncate text-muted">{app.description}</span>}
        </span>
      ),
    },
    { key: 'team', header: 'Team', from: 'sm', cell: (app) => teams.data?.teams.find((team) => team.id === app.team_id)?.name ?? <span className="text-muted">–</span> },
    { key: 'created', header: 'Created', from: 'md', cell: (app) => <time title={time(app.created_at, zone, 'full')}>{time(app.created_at, zone, 'date')}</time> },
    {
      key: 'actions',
      header: <span className="sr-only">Actions</span>,
      className: 'w-10 text-right',
      cell: (app) => (
        <Menu trigger={<Button kind="ghost" size="sm" square aria-label={`Actions for ${app.name}`} icon={<EllipsisVertical size={16} aria-hidden />} />}>
          <MenuItem needs="admin" icon={<Pencil size={14} aria-hidden />} onSelect={() => setEditing({ app })}>
            Edit…
          </MenuItem>
          <MenuItem needs="admin" danger icon={<Trash2 size={14} aria-hidden />} onSelect={() => setRemoving(app)}>
            Delete…
          </MenuItem>
        </Menu>
      ),
    },
  ]
  const remove = async (app: App): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/apps/{appId}', { params: { path: { orgId, appId: app.id } } }))
    await invalidate('/api/v1/orgs', '/api/v1/keys')
    toast(`${app.name} deleted`)
  }
  return (
    <Page title="Applications" about="Group keys by application to track usage and set budgets for each." actions={apps.length > 0 && create}>
      {list.isPending ? (
        <SkeletonRows rows={4} />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the applications" onRetry={() => void list.refetch()} />
      ) : apps.length === 0 ? (
        <Empty icon={<Boxes size={24} aria-hidden />} title="No applications yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/apps`, { name: 'Checkout' })} />}>
          Create one for each program or service, and assign its keys to it when you create or edit them.
        </Empty>
      ) : (
        <Section flush>
          <Table label="Applications" columns={columns} rows={apps} rowKey={(app) => app.id} />
          <Pager shown={apps.length} what="applications" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
        </Section>
      )}
      {editing && <AppForm app={editing.app} teams={teams.data?.teams ?? []} onClose={() => setEditing(null)} />}
      {removing && (
        <ConfirmDialog open onClose={() => setRemoving(null)} title={`Delete ${removing.name}?`} action="Delete application" onConfirm={() => remove(removing)}>
          Its keys keep working, without an application. Its past usage stays in the logs. Its budgets are deleted.
        </ConfirmDialog>
      )}
    </Page>
  )
}
