import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { endSession, startSession } from '@/api/session'
import { Button, ConfirmDialog } from '@/ui'

export function DeleteOrg({ org }: { org: Schemas['Organization'] }) {
  const me = useMe()
  const navigate = useNavigate()
  const [open, setOpen] = useState(false)
  const remove = async (): Promise<void> => {
    const other = me.orgs.find((one) => one.id !== org.id)
    // Deleting the organization invalidates its token, so get a token of another one first.
    const next = other && (await unwrap(client.POST('/api/v1/auth/switch-org', { body: { org_id: other.id } })))
    await unwrap(client.DELETE('/api/v1/orgs/{orgId}', { params: { path: { orgId: org.id } } }))
    if (next) startSession(next.token, me.email)
    else endSession()
    await navigate(next ? { to: '/' } : { to: '/login', search: {} })
  }
  return (
    <div className="flex flex-col items-start gap-3">
      <p className="text-muted">Its keys stop at once. Members, logs, prompts, datasets, skills and everything else in it are deleted and cannot be restored.</p>
      <Button kind="danger" needs="owner" onClick={() => setOpen(true)}>
        Delete organization
      </Button>
      <ConfirmDialog open={open} onClose={() => setOpen(false)} title={`Delete ${org.name}?`} action="Delete organization" typeToConfirm={org.slug} onConfirm={remove}>
        This deletes the organization for all of its members at once.
      </ConfirmDialog>
    </div>
  )
}
