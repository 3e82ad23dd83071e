import { Link2 } from 'lucide-react'
import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Section, Table, type Column } from '@/ui'
import { InviteLink } from './InviteLink'
import { roleChangeBlocker } from './roles'

type Invitation = Schemas['Invitation']

/** Pending invitations. A link is shown once; a new link replaces it. */
export function Invitations({ invitations }: { invitations: Invitation[] }) {
  const { zone } = usePrefs()
  const now = useNow(60_000)
  const me = useMe()
  const [link, setLink] = useState<{ email: string; token: string } | null>(null)
  const renew = useAction(async ({ email, role }: Invitation) => {
    const added = await unwrap(client.POST('/api/v1/orgs/{orgId}/members', { params: { path: { orgId: me.orgId } }, body: { email, role } }))
    await invalidate('/api/v1/orgs')
    if ('invite_token' in added) setLink({ email, token: added.invite_token })
  })
  const columns: Column<Invitation>[] = [
    { key: 'email', header: 'Address', cell: (invitation) => invitation.email },
    { key: 'role', header: 'Role', cell: (invitation) => invitation.role },
    { key: 'expires', header: 'Expires', from: 'sm', cell: (invitation) => <time title={time(invitation.expires_at, zone, 'full')}>{ago(invitation.expires_at, now)}</time> },
    {
      key: 'link',
      header: <span className="sr-only">Actions</span>,
      className: 'text-right',
      cell: (invitation) => (
        <Button kind="ghost" size="sm" busy={renew.busy} blocked={roleChangeBlocker(me, invitation.role) ?? undefined} icon={<Link2 size={14} aria-hidden />} aria-label={`New link for ${invitation.email}`} onClick={() => renew.run(invitation)}>
          <span className="max-sm:sr-only">New link</span>
        </Button>
      ),
    },
  ]
  return (
    <Section title={`Pending invitations`} flush>
      <Table label="Pending invitations" columns={columns} rows={invitations} rowKey={(invitation) => invitation.id} />
      <ErrorLine error={renew.error} />
      {link && <InviteLink {...link} onClose={() => setLink(null)} />}
    </Section>
  )
}
