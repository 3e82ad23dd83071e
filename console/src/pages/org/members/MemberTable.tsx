import { LogOut, ScrollText, UserMinus } from 'lucide-react'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { signOut } from '@/api/auth'
import { client, unwrap, type Schemas } from '@/api/client'
import { useAuditReason, useMe, type Role } from '@/api/me'
import { invalidate } from '@/api/query'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { Badge, Button, ConfirmDialog, Select, Table, toast, type Column } from '@/ui'
import { HistoryDialog } from '../audit/History'
import { ROLES, roleChangeBlocker } from './roles'

type Member = Schemas['Member']

export function MemberTable({ members }: { members: Member[] }) {
  const { zone } = usePrefs()
  const me = useMe()
  const auditReason = useAuditReason()
  const [removing, setRemoving] = useState<Member | null>(null)
  const [shown, setShown] = useState<Member | null>(null)
  const isLastOwner = (member: Member): boolean => member.role === 'owner' && members.filter((one) => one.role === 'owner').length === 1
  const columns: Column<Member>[] = [
    {
      key: 'name',
      header: 'Person',
      className: 'name max-w-[1px] w-1/2',
      cell: (member) => (
        <span className="flex min-w-0 flex-col py-1">
          <span className="flex items-center gap-2">
            <span className="name truncate font-medium">{member.display_name}</span>
            {member.user_id === me.userId && <Badge tone="accent">you</Badge>}
          </span>
          <span className="name truncate text-muted">{member.email}</span>
        </span>
      ),
    },
    { key: 'role', header: 'Role', cell: (member) => <RoleSelect member={member} blocked={isLastOwner(member) ? 'An organization needs an owner' : roleChangeBlocker(me, member.role)} /> },
    { key: 'since', header: 'Since', from: 'md', cell: (member) => <time title={time(member.created_at, zone, 'full')}>{time(member.created_at, zone, 'date')}</time> },
    {
      key: 'actions',
      header: <span className="sr-only">Actions</span>,
      className: 'text-right',
      cell: (member) => {
        const self = member.user_id === me.userId
        const blocked = isLastOwner(member) ? 'The last owner cannot leave' : self ? null : roleChangeBlocker(me, member.role)
        return (
          <>
            <Button kind="ghost" size="sm" square blocked={auditReason ?? undefined} icon={<ScrollText size={14} aria-hidden />} aria-label={`History of ${member.display_name}`} onClick={() => setShown(member)} />
            <Button
              kind="ghost"
              size="sm"
              blocked={blocked ?? undefined}
              icon={self ? <LogOut size={14} aria-hidden /> : <UserMinus size={14} aria-hidden />}
              aria-label={self ? 'Leave the organization' : `Remove ${member.display_name}`}
              onClick={() => setRemoving(member)}
            >
              <span className="max-sm:sr-only">{self ? 'Leave' : 'Remove'}</span>
            </Button>
          </>
        )
      },
    },
  ]
  return (
    <>
      <Table label="Members" columns={columns} rows={members} rowKey={(member) => member.user_id} />
      {shown && <HistoryDialog type="member" id={shown.user_id} name={shown.display_name} onClose={() => setShown(null)} />}
      {removing && <Remove member={removing} onClose={() => setRemoving(null)} />}
    </>
  )
}

function RoleSelect({ member, blocked }: { member: Member; blocked: string | null }) {
  const me = useMe()
  const [confirming, setConfirming] = useState<Role | null>(null)
  const change = async (role: Role): Promise<void> => {
    const params = { path: { orgId: me.orgId, userId: member.user_id } }
    await unwrap(client.PUT('/api/v1/orgs/{orgId}/members/{userId}', { params, body: { role } }))
    await invalidate('/api/v1/orgs', '/api/v1/auth')
    toast(`${member.display_name} is now ${role}`)
  }
  return (
    <span title={blocked ?? undefined}>
      <Select
        className="w-28"
        aria-label={`Role of ${member.display_name}`}
        aria-description={blocked ?? undefined}
        disabled={blocked !== null}
        value={confirming ?? member.role}
        onChange={(event) => setConfirming(event.target.value as Role)}
        options={ROLES.map(({ role }) => ({ value: role, label: role, disabled: roleChangeBlocker(me, role) !== null }))}
      />
      {confirming !== null && (
        <ConfirmDialog open onClose={() => setConfirming(null)} title={`Make ${member.display_name} ${confirming}?`} action="Change role" onConfirm={() => change(confirming)}>
          {member.email} is {member.role} now. The change takes effect at once, in every session.
        </ConfirmDialog>
      )}
    </span>
  )
}

function Remove({ member, onClose }: { member: Member; onClose: () => void }) {
  const me = useMe()
  const navigate = useNavigate()
  const self = member.user_id === me.userId
  const remove = async (): Promise<void> => {
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}/members/{userId}', { params: { path: { orgId: me.orgId, userId: member.user_id } } }))
    if (self) {
      await signOut()
      await navigate({ to: '/login', search: {} })
      return
    }
    await invalidate('/api/v1/orgs')
    toast(`${member.display_name} removed`)
  }
  return (
    <ConfirmDialog open onClose={onClose} title={self ? 'Leave this organization?' : `Remove ${member.display_name}?`} action={self ? 'Leave' : 'Remove member'} onConfirm={remove}>
      {self ? 'You lose access at once, are signed out, and the keys that you made are revoked, except those of an application. To come back you need a new invitation.' : `${member.email} loses access at once, in every session. Keys that they made are revoked, except those of an application.`}
    </ConfirmDialog>
  )
}
