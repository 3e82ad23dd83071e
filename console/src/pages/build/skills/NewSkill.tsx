import { useNavigate } from '@tanstack/react-router'
import { client, take } from '@/api/client'
import { refresh } from '@/api/query'
import { checkSource } from '@/lib/frontmatter'
import { useRemembered } from '@/lib/remembered'
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
  const [source, setSource] = useRemembered<string | null>('skill.new', null)
  const text = source ?? TEMPLATE
  const create = useAction(async () => {
    const made = await take(client.POST('/api/v1/skills', { body: { raw_source: text } }))
    setSource(null)
    await refresh('/api/v1/skills')
    await navigate({ to: '/skills/$skillId', params: { skillId: made.id } })
  })
  const known = create.error?.code === 'invalid_frontmatter'
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title="New skill"
      description="A SKILL.md as agents load it. It is judged as soon as it is saved."
      onSubmit={create.run}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={create.busy} blocked={checkSource(text).length > 0 && 'The frontmatter has problems'}>
            Create skill
          </Button>
        </>
      }
    >
      <SourceEditor value={text} onChange={setSource} refused={create.error} />
      {!known && <ErrorLine error={create.error} />}
    </Dialog>
  )
}
