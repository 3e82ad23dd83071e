import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Field, FormDialog, Input } from '@/ui'
import { TemplateEditor } from './TemplateEditor'

export function NewPrompt({ onClose }: { onClose(): void }) {
  const navigate = useNavigate()
  const [namespace, setNamespace] = useState('')
  const [slug, setSlug] = useState('')
  const [content, setContent] = useState('')
  const create = useAction(async () => {
    const created = await unwrap(client.POST('/api/v1/prompts', { body: { namespace, slug, content } }))
    await invalidate('/api/v1/prompts')
    await navigate({ to: '/prompts/$namespace/$slug', params: created })
  })
  const { namespace: namespaceError, slug: slugError, content: contentError } = create.fields
  return (
    <FormDialog
      size="lg"
      onClose={onClose}
      title="New prompt"
      description="Requests name it as namespace/name. The text can be changed later; every change is a version."
      action={create}
      submit="Create prompt"
      fields={['namespace', 'slug', 'content']}
    >
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Namespace" error={namespaceError} hint="A team or a product: lowercase letters, digits, . _ -">
          <Input mono required autoFocus value={namespace} onChange={(event) => setNamespace(event.target.value)} placeholder="support" />
        </Field>
        <Field label="Name" error={slugError}>
          <Input mono required value={slug} onChange={(event) => setSlug(event.target.value)} placeholder="greeting" />
        </Field>
      </div>
      <div>
        <div className="mb-1 text-sm font-medium" aria-hidden>
          Text
        </div>
        <TemplateEditor label="Text" value={content} onChange={setContent} rows={8} problem={create.error} placeholder="You are a helpful assistant of {{company}}." />
        {contentError && (
          <p role="alert" className="mt-1 text-xs text-err">
            {contentError}
          </p>
        )}
      </div>
    </FormDialog>
  )
}
