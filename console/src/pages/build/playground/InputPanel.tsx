import { useQueries } from '@tanstack/react-query'
import { Pencil } from 'lucide-react'
import { api } from '@/api/client'
import { Button, Field, Section, TextArea } from '@/ui'
import { usePrompts } from '../prompts/usePrompts'
import { TemplateEditor } from '../prompts/TemplateEditor'
import { PromptPicker } from '../shared/PromptPicker'
import { Messages } from './Messages'
import { ParamFields } from './ParamFields'
import { writtenVariables, type Setup } from './setup'

interface InputPanelProps {
  setup: Setup
  onChange(setup: Setup): void
}

interface EditedMessage {
  /** Index of the message that gets the focus, or null. */
  edited: number | null
  onFocused(): void
}

/** Input editor: a prompt, messages, values of their variables, and the shared parameters. */
export function InputPanel({ setup, onChange, edited, onFocused }: InputPanelProps & EditedMessage) {
  const variables = useVariables(setup)
  return (
    <div className="flex flex-col gap-4">
      <PromptSection setup={setup} onChange={onChange} />
      <Section title="Messages">
        <Messages messages={setup.messages} onChange={(messages) => onChange({ ...setup, messages })} edited={edited} onFocused={onFocused} />
      </Section>
      {variables.length > 0 && (
        <Section title="Variables">
          <div className="flex flex-col gap-2">
            {variables.map((variable) => (
              <Field key={variable} label={<code>{variable}</code>}>
                <TextArea rows={1} className="!min-h-[30px]" value={setup.values[variable] ?? ''} onChange={(event) => onChange({ ...setup, values: { ...setup.values, [variable]: event.target.value } })} />
              </Field>
            ))}
          </div>
        </Section>
      )}
      <Section title="Parameters (all columns)">
        <ParamFields params={setup.params} onChange={(params) => onChange({ ...setup, params })} />
      </Section>
    </div>
  )
}

/** Variables of all prompts and messages, each once. */
function useVariables(setup: Setup): string[] {
  const own = setup.columns.flatMap((column) => column.prompt ?? [])
  const shared = setup.prompt && setup.draft === null ? [setup.prompt] : []
  const stored = useQueries({
    queries: [...shared, ...own].map(({ namespace, slug, version }) => ({ ...api.queryOptions('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace, slug }, query: { version } } }), staleTime: 30_000 })),
  })
  return [...new Set([...stored.flatMap((query) => query.data?.variables ?? []), ...writtenVariables(setup)])]
}

/** The prompt of all columns. Its text can be changed here and tried before it is saved. */
function PromptSection({ setup, onChange }: InputPanelProps) {
  const { list, prompts } = usePrompts()
  const { prompt, draft } = setup
  const detail = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path: { namespace: prompt?.namespace ?? '', slug: prompt?.slug ?? '' }, query: { version: prompt?.version ?? null } } }, { enabled: prompt !== null, staleTime: 30_000 })
  if (!prompt && list.data && prompts.length === 0) return null
  return (
    <Section
      title="Prompt"
      aside={
        prompt &&
        (draft === null ? (
          <Button size="sm" kind="ghost" icon={<Pencil size={14} aria-hidden />} blocked={!detail.data && 'The text is being loaded'} onClick={() => onChange({ ...setup, draft: detail.data?.content ?? '' })}>
            Edit text
          </Button>
        ) : (
          <Button size="sm" kind="ghost" onClick={() => onChange({ ...setup, draft: null })}>
            Discard changes
          </Button>
        ))
      }
    >
      <div className="flex flex-col gap-3">
        <PromptPicker quiet value={prompt} onChange={(next) => onChange({ ...setup, prompt: next, draft: null })} none="No prompt" />
        {prompt && draft !== null && (
          <>
            <TemplateEditor label="Changed text of the prompt" value={draft} onChange={(next) => onChange({ ...setup, draft: next })} rows={6} />
            <p className="text-xs text-muted">This text is sent instead of the stored one. “Save as version” keeps it.</p>
          </>
        )}
        {prompt && draft === null && detail.data && (
          <pre className="max-h-48 overflow-auto rounded-md border border-line bg-sunken p-3 break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label="Text of the prompt">
            {detail.data.content}
          </pre>
        )}
        {prompt && <p className="text-xs text-muted">{setup.messages.some((message) => message.content.trim() !== '') ? 'Sent as the system message before the messages, as in production.' : 'Without a message it is sent alone, as the user message.'}</p>}
      </div>
    </Section>
  )
}
