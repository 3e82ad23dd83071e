import { useState } from 'react'
import { client, unwrap } from '@/api/client'
import { useMe, type Role } from '@/api/me'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select } from '@/ui'
import { InviteLink } from './InviteLink'
import { ROLES, roleChangeBlocker } from './roles'

export function InviteForm({ onClose }: { onClose: () => void }) {
  const me = useMe()
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('member')
  const [token, setToken] = useState<string | null>(null)
  const invite = useAction(async () => {
    const added = await unwrap(client.POST('/api/v1/orgs/{orgId}/members', { params: { path: { orgId: me.orgId } }, body: { email: email.trim(), role } }))
    await invalidate('/api/v1/orgs')
    setToken(added.invite_token)
  })
  if (token !== null) return <InviteLink email={email.trim()} token={token} onClose={onClose} />
  return (
    <FormDialog
      onClose={onClose}
      size="sm"
      title="Invite a member"
      description="They join by opening a link, with their account here or a new one."
      action={invite}
      submit="Invite"
      fields={['email', 'role']}
    >
      <Field label="Email" error={invite.fields['email']}>
        <Input type="email" required autoFocus value={email} placeholder="grace@example.com" onChange={(event) => setEmail(event.target.value)} />
      </Field>
      <Field label="Role" hint={ROLES.find((one) => one.role === role)?.may} error={invite.fields['role']}>
        <Select value={role} onChange={(event) => setRole(event.target.value as Role)} options={ROLES.map((one) => ({ value: one.role, label: one.role, disabled: roleChangeBlocker(me, one.role) !== null }))} />
      </Field>
    </FormDialog>
  )
}
