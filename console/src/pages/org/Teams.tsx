/** Teams group members and applications, and can have a budget. */
import { Link } from '@tanstack/react-router'
import { Building2, Pencil, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { invalidate } from '@/api/query'
import { money, plural } from '@/lib/format'
import { term } from '@/lib/query'
import { resolveRange } from '@/lib/range'
import { apiSnippet } from '@/lib/snippets'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Button, Checkbox, Code, ConfirmDialog, Empty, ErrorPanel, Field, FormDialog, Input, Page, Pager, SkeletonCards, toast } from '@/ui'

type Team = Schemas['Team']

export function Teams() {
  const { orgId } = useMe()
  const [editing, setEditing] = useState<{ team: Team | null } | null>(null)
  const [removing, setRemoving] = useState<Team | null>(null)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/teams', { params: { path: { orgId }, query: { limit: 50 } } }, cursorPaging)
  const apps = api.useQuery('get', '/api/v1/orgs/{orgId}/apps', { params: { path: { orgId }, query: { limit: 200 } } }, { staleTime: 60_000 })
  // Budgets count by months of UTC, and so does this.
  const { from, to } = resolveRange({ range: 'this-month' }, useNow(60_000), 'utc')
  const usage = api.useQuery('get', '/api/v1/usage/breakdown', { params: { query: { from, to, by: 'team' } } }, { staleTime: 60_000, placeholderData: (before) => before })
  const spendOf = (teamId: string) => (usage.data ? (usage.data.rows.find((row) => row.key === teamId)?.cost_usd ?? 0) : null)
  const teams = list.data?.pages.flatMap((page) => page.teams) ?? []
  const create = (
    <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => setEditing({ team: null })}>
      Create team
    </Button>
  )
  const remove = async (team: Team): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/teams/{teamId}', { params: { path: { orgId, teamId: team.id } } }))
    await invalidate('/api/v1/orgs')
    toast(`${team.name} deleted`)
  }
  return (
    <Page title="Teams" about="Track usage and set budgets per team." actions={teams.length > 0 && create}>
      {list.isPending ? (
        <SkeletonCards cards={3} />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the teams" onRetry={() => void list.refetch()} />
      ) : teams.length === 0 ? (
        <Empty icon={<Building2 size={24} aria-hidden />} title="No teams yet" action={create} more={<Code label="The same with the API" code={apiSnippet(location.origin, `/orgs/${orgId}/teams`, { name: 'Search' })} />}>
          A team groups people and applications to track and limit their usage.
        </Empty>
      ) : (
        <>
          <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,320px),1fr))] gap-3">
            {teams.map((team) => (
              <li key={team.id} className="card flex min-w-0 flex-col gap-2 p-3" aria-label={team.name}>
                <div className="flex items-center gap-1">
                  <h2 className="name min-w-0 flex-1 truncate text-sm">{team.name}</h2>
                  <Button kind="ghost" size="sm" square needs="admin" aria-label={`Edit ${team.name}`} icon={<Pencil size={14} aria-hidden />} onClick={() => setEditing({ team })} />
                  <Button kind="ghost" size="sm" square needs="admin" aria-label={`Delete ${team.name}`} icon={<Trash2 size={14} aria-hidden />} onClick={() => setRemoving(team)} />
                </div>
                <p className="text-xs text-muted">
                  {plural(team.members.length, 'member')}, {plural(apps.data?.apps.filter((app) => app.team_id === team.id).length ?? 0, 'application')},{' '}
                  <Link to="/usage" search={{ by: 'app', query: term('team', team.id), range: 'this-month' }} className="underline">
                    {spendText(spendOf(team.id))} this month
                  </Link>
                </p>
                <ul className="flex flex-wrap gap-1">
                  {team.members.map((member) => (
                    <li key={member.user_id} className="chip max-w-full" title={member.role}>
                      <span className="name truncate">{member.email}</span>
                    </li>
                  ))}
                </ul>
              </li>
            ))}
          </ul>
          {list.hasNextPage && <Pager shown={teams.length} what="teams" more busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />}
        </>
      )}
      {editing && <TeamForm team={editing.team} onClose={() => setEditing(null)} />}
      {removing && (
        <ConfirmDialog open onClose={() => setRemoving(null)} title={`Delete ${removing.name}?`} action="Delete team" onConfirm={() => remove(removing)}>
          Its members stay in the organization, and its applications keep working without a team. Its budgets are deleted.
        </ConfirmDialog>
      )}
    </Page>
  )
}

/** Whole cents: a total of the month needs no more. */
function spendText(usd: number | null): string {
  return usd !== null && usd > 0 && usd < 0.01 ? 'less than $0.01' : money(usd)
}

function TeamForm({ team, onClose }: { team: Team | null; onClose: () => void }) {
  const { orgId } = useMe()
  const [name, setName] = useState(team?.name ?? '')
  const [chosen, setChosen] = useState<string[]>(team?.members.map((member) => member.user_id) ?? [])
  const members = api.useQuery('get', '/api/v1/orgs/{orgId}/members', { params: { path: { orgId }, query: { limit: 200 } } })
  const save = useAction(async () => {
    const body = { name: name.trim(), member_ids: chosen }
    if (team) await unwrap(client.PUT('/api/v1/orgs/{orgId}/teams/{teamId}', { params: { path: { orgId, teamId: team.id } }, body }))
    else await unwrap(client.POST('/api/v1/orgs/{orgId}/teams', { params: { path: { orgId } }, body }))
    await invalidate('/api/v1/orgs')
    toast(`${body.name} ${team ? 'saved' : 'created'}`)
    onClose()
  })
  return (
    <FormDialog
      onClose={onClose}
      title={team ? `Edit ${team.name}` : 'Create team'}
      action={save}
      submit={team ? 'Save team' : 'Create team'}
      fields={['name']}
    >
      <Field label="Name" error={save.fields['name']}>
        <Input required autoFocus maxLength={100} value={name} placeholder="Search" onChange={(event) => setName(event.target.value)} />
      </Field>
      <fieldset className="flex max-h-64 flex-col gap-2 overflow-y-auto">
        <legend className="mb-1 text-sm font-medium">Members</legend>
        {members.data?.members.map((member) => (
          <Checkbox
            key={member.user_id}
            checked={chosen.includes(member.user_id)}
            onChange={(event) => setChosen(event.target.checked ? [...chosen, member.user_id] : chosen.filter((id) => id !== member.user_id))}
            label={member.display_name}
            hint={`${member.email} · ${member.role}`}
          />
        ))}
      </fieldset>
    </FormDialog>
  )
}
