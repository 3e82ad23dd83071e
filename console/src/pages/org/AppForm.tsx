import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { isRecord } from '@/api/error'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, Select, TextArea, toast } from '@/ui'

interface Props {
  app: Schemas['Application'] | null
  teams: Schemas['Team'][]
  onClose: () => void
}

export function AppForm({ app, teams, onClose }: Props) {
  const { orgId } = useMe()
  const [name, setName] = useState(app?.name ?? '')
  const [description, setDescription] = useState(app?.description ?? '')
  const [teamId, setTeamId] = useState(app?.team_id ?? '')
  const [config, setConfig] = useState(JSON.stringify(app?.config ?? {}, null, 2))
  const read = objectOf(config)
  const save = useAction(async () => {
    const body = { name: name.trim(), description: description.trim(), team_id: teamId || null, config: read ?? {} }
    if (app) await unwrap(client.PUT('/api/v1/orgs/{orgId}/apps/{appId}', { params: { path: { orgId, appId: app.id } }, body }))
    else await unwrap(client.POST('/api/v1/orgs/{orgId}/apps', { params: { path: { orgId } }, body }))
    await invalidate('/api/v1/orgs')
    toast(`${body.name} ${app ? 'saved' : 'created'}`)
    onClose()
  })
  return (
    <FormDialog
      onClose={onClose}
      title={app ? `Edit ${app.name}` : 'Create application'}
      action={save}
      submit={app ? 'Save application' : 'Create application'}
      blocked={read === null && 'The configuration must be a JSON object'}
      fields={['name', 'team_id', 'description', 'config']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Name" error={save.fields['name']}>
          <Input required autoFocus maxLength={100} value={name} placeholder="Checkout" onChange={(event) => setName(event.target.value)} />
        </Field>
        <Field label="Team" error={save.fields['team_id']}>
          <Select value={teamId} onChange={(event) => setTeamId(event.target.value)} options={[{ value: '', label: 'None' }, ...teams.map((team) => ({ value: team.id, label: team.name }))]} />
        </Field>
      </div>
      <Field label="Description" error={save.fields['description']}>
        <Input value={description} onChange={(event) => setDescription(event.target.value)} />
      </Field>
      <Field label="Configuration" hint="Your own JSON. The gateway stores it and does not use it." error={read === null ? 'Must be a JSON object' : save.fields['config']}>
        <TextArea mono rows={4} value={config} onChange={(event) => setConfig(event.target.value)} />
      </Field>
    </FormDialog>
  )
}

function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return isRecord(value) ? value : null
  } catch {
    return null
  }
}
