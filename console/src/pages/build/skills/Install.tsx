import { Link as LinkIcon, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { ago, plural, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ConfirmDialog, Dialog, Empty, ErrorPanel, Field, FormDialog, Input, OneTimeSecret, Page, Section, Select, SkeletonRows, Snippets, Table, type Column } from '@/ui'
import { SkillsLayout } from './SkillsLayout'

type Link = Schemas['InstallLink']
type NewLink = Schemas['NewInstallLink']
type Fetch = Schemas['InstallFetch']
type List = Schemas['InstallLinkList']

/** How agents install the organization's skills: with a key, or from links with a secret token. */
export function Install() {
  return (
    <Page title="Install" about="Commands that install approved skills for agents and keep them up to date">
      <SkillsLayout current="install">
        <Load />
      </SkillsLayout>
    </Page>
  )
}

function Load() {
  const query = api.useQuery('get', '/api/v1/skills/install-links', { params: { query: { limit: 200 } } })
  if (query.isError) return <ErrorPanel error={query.error} what="the install links" onRetry={() => void query.refetch()} />
  if (!query.data) return <SkeletonRows rows={6} />
  return (
    <div className="flex flex-col gap-4">
      <Links list={query.data} />
      <WithKey list={query.data} />
    </div>
  )
}

function Links({ list }: { list: List }) {
  const [creating, setCreating] = useState(false)
  const [created, setCreated] = useState<NewLink | null>(null)
  const [revoking, setRevoking] = useState<Link | null>(null)
  const { zone } = usePrefs()
  const now = useNow(30_000)
  const create = (
    <Button kind="primary" needs="admin" blocked={!list.enabled && 'The operator has to set GATEWAY_INSTALL_LINKS=true'} icon={<Plus size={14} aria-hidden />} onClick={() => setCreating(true)}>
      New link
    </Button>
  )
  const columns: Column<Link>[] = [
    { key: 'name', header: 'Link', className: 'name max-w-56 truncate', cell: (row) => <span className="font-medium">{row.name}</span> },
    { key: 'skills', header: 'Skills', cell: (row) => <Badge>{selection(row.skills)}</Badge> },
    { key: 'expires', header: 'Expires', from: 'md', cell: (row) => (row.expires_at ? time(row.expires_at, zone) : <span className="text-muted">never</span>) },
    { key: 'fetched', header: 'Last fetched', from: 'sm', cell: (row) => <LastFetch fetches={row.fetches} now={now} /> },
    {
      key: 'revoke',
      header: '',
      className: 'text-right',
      cell: (row) => (
        <Button size="sm" kind="ghost" needs="admin" aria-label={`Revoke ${row.name}`} icon={<Trash2 size={14} aria-hidden />} onClick={() => setRevoking(row)}>
          <span className="max-sm:sr-only">Revoke</span>
        </Button>
      ),
    },
  ]
  return (
    <>
      {list.links.length === 0 ? (
        <Empty icon={<LinkIcon size={24} aria-hidden />} title="No install links" action={create}>
          {list.enabled
            ? 'A link lets hosts that cannot send a key install your skills. Everyone who knows it can read them, so make one per team and revoke it when it is not needed.'
            : 'Install links are off on this server. The operator switches them on with GATEWAY_INSTALL_LINKS=true. With a key, the commands below work all the same.'}
        </Empty>
      ) : (
        <Section title="Install links" aside={create} flush>
          <Table label="Install links" columns={columns} rows={list.links} rowKey={(row) => row.id} />
        </Section>
      )}
      {creating && (
        <NewLinkDialog
          onClose={() => setCreating(false)}
          onCreated={(link) => {
            setCreating(false)
            setCreated(link)
          }}
        />
      )}
      {created && <CreatedLink link={created} onClose={() => setCreated(null)} />}
      <ConfirmDialog
        open={revoking !== null}
        onClose={() => setRevoking(null)}
        title={`Revoke ${revoking?.name ?? ''}?`}
        action="Revoke"
        onConfirm={async () => {
          if (!revoking) return
          await client.DELETE('/api/v1/skills/install-links/{installLinkId}', { params: { path: { installLinkId: revoking.id } } })
          await invalidate('/api/v1/skills/install-links')
        }}
      >
        Hosts that use this link get no further updates. What they have installed stays there.
      </ConfirmDialog>
    </>
  )
}

function NewLinkDialog({ onClose, onCreated }: { onClose(): void; onCreated(link: NewLink): void }) {
  const [name, setName] = useState('')
  const [skills, setSkills] = useState<'passed' | 'shelf'>('passed')
  const [days, setDays] = useState('')
  const create = useAction(async () => {
    const expires_at = days ? new Date(Date.now() + Number(days) * 86_400_000).toISOString() : null
    const link = await unwrap(client.POST('/api/v1/skills/install-links', { body: { name, skills, expires_at } }))
    await invalidate('/api/v1/skills/install-links')
    onCreated(link)
  })
  return (
    <FormDialog title="New install link" description="Its URL is the credential, and is shown once." action={create} submit="Create link" blocked={!name.trim() && 'Name the link'} fields={['name', 'expires_at']} onClose={onClose}>
      <Field label="Name" hint="Who uses it" error={create.fields['name']}>
        <Input value={name} onChange={(event) => setName(event.target.value)} placeholder="Web team laptops" />
      </Field>
      <Field label="Skills">
        <Select value={skills} onChange={(event) => setSkills(event.target.value === 'shelf' ? 'shelf' : 'passed')}>
          <option value="passed">All that passed</option>
          <option value="shelf">Those on the shelf</option>
        </Select>
      </Field>
      <Field label="Expires" error={create.fields['expires_at']}>
        <Select value={days} onChange={(event) => setDays(event.target.value)}>
          <option value="">Never</option>
          <option value="7">In 7 days</option>
          <option value="90">In 90 days</option>
          <option value="365">In a year</option>
        </Select>
      </Field>
    </FormDialog>
  )
}

function CreatedLink({ link, onClose }: { link: NewLink; onClose(): void }) {
  const { commands } = link
  return (
    <Dialog open size="lg" onClose={onClose} title={`Install from ${link.name}`} description="Run one of these where the agent runs." actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <OneTimeSecret title="Install link" secret={link.url}>
        It is shown only now. Everyone who knows it can read the skills.
      </OneTimeSecret>
      <Snippets
        label="Commands"
        snippets={[
          { name: 'Claude Code', code: commands.claude_code },
          { name: 'Codex', code: commands.codex },
          { name: 'npx skills', code: commands.skills, note: 'For every agent that the skills CLI knows.' },
          { name: 'git', code: commands.git },
        ]}
      />
    </Dialog>
  )
}

/** Commands for callers that can send a key. The key stays out of the page. */
function WithKey({ list }: { list: List }) {
  const now = useNow(30_000)
  const base = list.key_url
  return (
    <Section title="With a key" aside={<LastFetch fetches={list.key_fetches} now={now} />}>
      <Snippets
        label="Commands with a key"
        snippets={[
          { name: 'git', code: `git -c http.extraHeader="X-Gateway-Key: $GATEWAY_KEY" \\\n  clone ${base}/skills.git team-skills`, note: 'Run git pull to get skills approved since then.' },
          { name: 'Claude Code', code: `git -c http.extraHeader="X-Gateway-Key: $GATEWAY_KEY" \\\n  clone ${base}/skills.git team-skills\nclaude plugin marketplace add ./team-skills`, note: 'The clone is a marketplace with a plugin for each skill, and all-skills.' },
          { name: 'curl', code: `curl -H "X-Gateway-Key: $GATEWAY_KEY" \\\n  ${base}/.well-known/agent-skills/index.json` },
        ]}
      />
    </Section>
  )
}

function LastFetch({ fetches, now }: { fetches: readonly Fetch[]; now: number }) {
  const last = fetches[0]
  if (!last) return <span className="text-muted">never fetched</span>
  const all = fetches.map((fetch) => `${fetch.kind} by ${fetch.client}: ${plural(fetch.fetches, 'time')}`).join('\n')
  return (
    <span title={all}>
      {last.kind} by <code>{last.client}</code> {ago(last.last_at, now)}
    </span>
  )
}

function selection(skills: Link['skills']) {
  if (skills === 'passed') return 'all that passed'
  if (skills === 'shelf') return 'on the shelf'
  return plural(Array.isArray(skills) ? skills.length : 0, 'skill')
}
