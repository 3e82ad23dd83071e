import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input, toast } from '@/ui'
import { DiffView } from '@/ui/DiffView'
import { TemplateEditor } from '../prompts/TemplateEditor'
import { VariableChanges } from '../prompts/SaveDialog'
import { usePrompts } from '../prompts/usePrompts'
import type { Setup } from './setup'

/** Saves the messages as a new version of a prompt or as a new prompt. */
export function SaveAsVersion({ setup, onClose }: { setup: Setup; onClose(): void }) {
  const navigate = useNavigate()
  const { prompts } = usePrompts()
  const chosen = setup.prompt
  const template = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace: chosen?.namespace ?? '', slug: chosen?.slug ?? '' }, query: { version: chosen?.version ?? null } } }, { enabled: chosen !== null })
  const [namespace, setNamespace] = useState(chosen?.namespace ?? '')
  const [slug, setSlug] = useState(chosen?.slug ?? '')
  const [edited, setEdited] = useState<string | null>(null)
  const content = edited ?? setup.draft ?? template.data?.content ?? messagesText(setup)
  const existing = prompts.find((prompt) => prompt.namespace === namespace && prompt.slug === slug)
  const save = useAction(async () => {
    const saved = await unwrap(client.POST('/api/v1/playground/save-version', { body: { namespace, slug, content } }))
    await invalidate('/api/v1/prompts')
    toast(`Saved as version ${saved.version}`)
    await navigate({ to: '/prompts/$namespace/$slug', params: saved })
  })
  const { namespace: wrongNamespace, slug: wrongSlug } = save.fields
  return (
    <FormDialog
      size="lg"
      onClose={onClose}
      title="Save as a version of a prompt"
      description="Use variables such as {{name}} for the parts that change."
      action={save}
      submit={existing ? `Save as version ${existing.version + 1}` : 'Create prompt'}
      blocked={existing?.content === content && 'It is the same as the latest version'}
      fields={['namespace', 'slug']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Namespace" error={wrongNamespace}>
          <Input mono required autoFocus value={namespace} onChange={(event) => setNamespace(event.target.value)} />
        </Field>
        <Field label="Name" error={wrongSlug} hint={existing ? `It is at version ${existing.version}` : undefined}>
          <Input mono required value={slug} onChange={(event) => setSlug(event.target.value)} />
        </Field>
      </div>
      <TemplateEditor label="Text" value={content} onChange={setEdited} rows={6} problem={save.error} />
      {existing && (
        <>
          <VariableChanges before={existing.content} after={content} />
          <DiffView before={existing.content} after={content} label="Changes" />
        </>
      )}
    </FormDialog>
  )
}

/** System and user messages, separated by a blank line. */
function messagesText(setup: Setup): string {
  return setup.messages
    .filter((message) => (message.role === 'system' || message.role === 'user') && message.content !== '')
    .map((message) => message.content)
    .join('\n\n')
}
