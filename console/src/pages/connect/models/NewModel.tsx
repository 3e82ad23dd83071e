import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { client, unwrap } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Page, toast, usePermissionReason } from '@/ui'
import { newModel, toDefinition, type ModelDraft, type Problems } from './draft'
import { ModelEditor } from './ModelEditor'

export function NewModel() {
  const { orgId } = useMe()
  const navigate = useNavigate()
  const [draft, setDraft] = useState(newModel)
  const [problems, setProblems] = useState<Problems>({})
  const reason = usePermissionReason('admin')
  const create = useAction(async () => {
    const { definition, problems: found } = toDefinition(draft)
    setProblems(found)
    if (Object.keys(found).length > 0) return
    const model = await unwrap(client.POST('/api/v1/orgs/{orgId}/models', { params: { path: { orgId } }, body: definition }))
    await invalidate('/api/v1/orgs/{orgId}/models')
    toast(`${model.name} created`)
    await navigate({ to: '/models/$modelId', params: { modelId: model.id } })
  })
  const edit = (next: ModelDraft) => {
    setDraft(next)
    create.reset()
    // A problem disappears once it is solved; new ones are shown when it is saved.
    if (Object.keys(problems).length > 0) setProblems(toDefinition(next).problems)
  }
  return (
    <Page title="New model" about="Applications call it by name, at /sdk/v1 or with X-Gateway-Provider: auto.">
      <form
        className="flex max-w-[960px] min-w-0 flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault()
          create.run()
        }}
      >
        <ModelEditor isNew draft={draft} problems={{ ...problems, ...create.fields }} readOnly={reason} onChange={edit} />
        <ErrorLine error={create.error} />
        <div className="flex justify-end gap-2">
          <Button onClick={() => void navigate({ to: '/models' })}>Cancel</Button>
          <Button kind="primary" type="submit" needs="admin" busy={create.busy} blocked={draft.name.trim() === '' && 'Give it a name first'}>
            Create model
          </Button>
        </div>
      </form>
    </Page>
  )
}
