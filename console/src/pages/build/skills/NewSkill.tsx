import { useNavigate } from '@tanstack/react-router'
import { client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { validateSkillSource } from '@/lib/frontmatter'
import { usePersistentState } from '@/lib/usePersistentState'
import { useAction } from '@/lib/useAction'
import { Button, Dialog, ErrorLine } from '@/ui'
import { SourceEditor } from './SourceEditor'

const TEMPLATE = `---
name: my-skill
description: What it does. Use when the user asks for it.
---

# What to do

1. First step, with the exact command.
2. Second step.

## Example

What a good result looks like.
`

export function NewSkill({ onClose }: { onClose(): void }) {
  const navigate = useNavigate()
  const [source, setSource] = usePersistentState<string | null>('skill.new', null)
  const text = source ?? TEMPLATE
  const create = useAction(async () => {
    const created = await unwrap(client.POST('/api/v1/skills', { body: { raw_source: text } }))
    setSource(null)
    await invalidate('/api/v1/skills')
    await navigate({ to: '/skills/$skillId', params: { skillId: created.id } })
  })
  const known = create.error?.code === 'invalid_frontmatter'
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title="New skill"
      description="A SKILL.md file. It is evaluated when you save it."
      onSubmit={create.run}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={create.busy} blocked={validateSkillSource(text).length > 0 && 'The front matter has problems'}>
            Create skill
          </Button>
        </>
      }
    >
      <SourceEditor autoFocus value={text} onChange={setSource} refused={create.error} />
      {!known && <ErrorLine error={create.error} />}
    </Dialog>
  )
}
