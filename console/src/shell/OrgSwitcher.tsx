import { Check, ChevronsUpDown, Plus } from 'lucide-react'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { createOrg } from '@/api/auth'
import { useMe } from '@/api/me'
import { Button, Dialog, ErrorLine, Field, Input, Menu, MenuItem, MenuLabel, MenuLine } from '@/ui'
import { useSwitchOrg } from './useSwitchOrg'

export function OrgSwitcher() {
  const me = useMe()
  const change = useSwitchOrg()
  const [creating, setCreating] = useState(false)
  return (
    <>
      <Menu
        align="start"
        trigger={
          <Button kind="ghost" className="max-w-56 min-w-0 shrink" icon={<img src="/console/icon.svg" alt="" width={18} height={18} />}>
            <span className="truncate">
              <span className="sr-only">Organization: </span>
              {me.org?.name ?? ''}
            </span>
            <ChevronsUpDown size={14} className="shrink-0 text-muted" aria-hidden />
          </Button>
        }
      >
        <MenuLabel>Organizations</MenuLabel>
        {me.orgs.map((org) => (
          <MenuItem key={org.id} icon={<Check size={14} className={org.id === me.orgId ? 'text-accent' : 'invisible'} aria-hidden />} onSelect={() => org.id !== me.orgId && void change(org.id)}>
            {org.name}{' '}
            <span className="ml-1 text-xs text-muted">
              {org.role} · {org.plan}
            </span>
          </MenuItem>
        ))}
        <MenuLine />
        <MenuItem icon={<Plus size={14} aria-hidden />} onSelect={() => setCreating(true)}>
          New organization
        </MenuItem>
      </Menu>
      {creating && <NewOrg onClose={() => setCreating(false)} />}
    </>
  )
}

function NewOrg({ onClose }: { onClose(): void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const submit = async () => {
    setBusy(true)
    try {
      await createOrg(name)
      onClose()
      await navigate({ to: '/start' })
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Dialog
      open
      onClose={onClose}
      size="sm"
      title="New organization"
      description="It has its own keys, members, logs and budgets. You become its owner."
      onSubmit={() => void submit()}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={busy}>
            Create organization
          </Button>
        </>
      }
    >
      <Field label="Name">
        <Input value={name} required maxLength={100} autoFocus onChange={(event) => setName(event.target.value)} />
      </Field>
      <ErrorLine error={error} />
    </Dialog>
  )
}
