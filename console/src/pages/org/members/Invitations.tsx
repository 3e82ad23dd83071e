import { Link2, X } from 'lucide-react'
import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { ago, time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useNow } from '@/lib/useNow'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, Section, Table, toast, type Column } from '@/ui'
import { InviteLink } from './InviteLink'
import { roleChangeBlocker } from './roles'

type Invitation = Schemas['Invitation']

/** Pending invitations. A link is shown once; a new link replaces it. */
export function Invitations({ invitations }: { invitations: Invitation[] }) {
  const { zone } = usePrefs()
  const now = useNow(60_000)
  const me = useMe()
  const [link, setLink] = useState<{ email: string; token: string } | null>(null)
  const [withdrawing, setWithdrawing] = useState<Invitation | null>(null)
  const renew = useAction(async ({ email, role }: Invitation) => {
    const added = await unwrap(client.POST('/api/v1/orgs/{orgId}/members', { params: { path: { orgId: me.orgId } }, body: { email, role } }))
    await invalidate('/api/v1/orgs')
    setLink({ email, token: added.invite_token })
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
        <span className="inline-flex gap-1">
          <Button kind="ghost" size="sm" busy={renew.busy} blocked={roleChangeBlocker(me, invitation.role) ?? undefined} icon={<Link2 size={14} aria-hidden />} aria-label={`New link for ${invitation.email}`} onClick={() => renew.run(invitation)}>
            <span className="max-sm:sr-only">New link</span>
          </Button>
          <Button kind="ghost" size="sm" blocked={roleChangeBlocker(me, invitation.role) ?? undefined} icon={<X size={14} aria-hidden />} aria-label={`Withdraw the invitation of ${invitation.email}`} onClick={() => setWithdrawing(invitation)}>
            <span className="max-sm:sr-only">Withdraw</span>
          </Button>
        </span>
      ),
    },
  ]
  return (
    <Section title={`Pending invitations`} flush>
      <Table label="Pending invitations" columns={columns} rows={invitations} rowKey={(invitation) => invitation.id} />
      <ErrorLine error={renew.error} />
      {link && <InviteLink {...link} onClose={() => setLink(null)} />}
      {withdrawing && <Withdraw invitation={withdrawing} onClose={() => setWithdrawing(null)} />}
    </Section>
  )
}

function Withdraw({ invitation, onClose }: { invitation: Invitation; onClose: () => void }) {
  const me = useMe()
  const withdraw = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/invites/{inviteId}', { params: { path: { orgId: me.orgId, inviteId: invitation.id } } }))
    await invalidate('/api/v1/orgs')
    toast(`Invitation of ${invitation.email} withdrawn`)
  }
  return (
    <ConfirmDialog open onClose={onClose} title={`Withdraw the invitation of ${invitation.email}?`} action="Withdraw" onConfirm={withdraw}>
      Its link stops working at once.
    </ConfirmDialog>
  )
}
