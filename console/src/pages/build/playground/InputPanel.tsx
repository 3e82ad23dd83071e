import { ArrowDown, ArrowUp, Plus, X } from 'lucide-react'
import { api } from '@/api/client'
import { Button, Field, Section, Select, Tabs, TextArea } from '@/ui'
import { usePrompts } from '../prompts/usePrompts'
import { ParamFields } from './ParamFields'
import { ROLES, type Message, type PromptChoice, type Setup } from './setup'

interface InputPanelProps {
  setup: Setup
  onChange(setup: Setup): void
}

/** Input editor: messages or a stored prompt with variables, and the shared parameters. */
export function InputPanel({ setup, onChange }: InputPanelProps) {
  const { prompts } = usePrompts()
  const first = prompts[0]
  const toPrompt = () => onChange({ ...setup, prompt: setup.prompt ?? { namespace: first?.namespace ?? '', slug: first?.slug ?? '', version: null, values: {} } })
  return (
    <div className="flex flex-col gap-4">
      <Section flush>
        <Tabs
          label="What is asked"
          value={setup.prompt ? 'prompt' : 'messages'}
          onChange={(tab) => (tab === 'prompt' ? toPrompt() : onChange({ ...setup, prompt: null }))}
          items={[
            { value: 'messages', label: 'Messages', content: <Messages messages={setup.messages} onChange={(messages) => onChange({ ...setup, messages })} /> },
            { value: 'prompt', label: 'Prompt', content: setup.prompt && <PromptPart choice={setup.prompt} onChange={(prompt) => onChange({ ...setup, prompt })} /> },
          ]}
        />
      </Section>
      <Section title="Parameters (all columns)">
        <ParamFields params={setup.params} onChange={(params) => onChange({ ...setup, params })} />
      </Section>
    </div>
  )
}

function Messages({ messages, onChange }: { messages: Message[]; onChange(messages: Message[]): void }) {
  const change = (at: number, part: Partial<Message>) => onChange(messages.map((message, index) => (index === at ? { ...message, ...part } : message)))
  const move = (at: number, by: number) => onChange(messages.toSpliced(at, 1).toSpliced(at + by, 0, ...messages.slice(at, at + 1)))
  return (
    <div className="flex flex-col gap-3 p-3">
      <ol className="flex flex-col gap-3" aria-label="Messages">
        {messages.map((message, at) => (
          <li key={at} className="flex flex-col gap-1">
            <div className="flex items-center gap-1">
              <Select className="!w-28" aria-label={`Role of message ${at + 1}`} value={message.role} onChange={(event) => change(at, { role: ROLES.find((role) => role === event.target.value) ?? 'user' })} options={ROLES} />
              <span className="flex-1" />
              <Button size="sm" kind="ghost" square aria-label={`Move message ${at + 1} up`} blocked={at === 0 && 'It is the first'} icon={<ArrowUp size={14} aria-hidden />} onClick={() => move(at, -1)} />
              <Button size="sm" kind="ghost" square aria-label={`Move message ${at + 1} down`} blocked={at === messages.length - 1 && 'It is the last'} icon={<ArrowDown size={14} aria-hidden />} onClick={() => move(at, 1)} />
              <Button size="sm" kind="ghost" square aria-label={`Remove message ${at + 1}`} blocked={messages.length === 1 && 'One message must stay'} icon={<X size={14} aria-hidden />} onClick={() => onChange(messages.toSpliced(at, 1))} />
            </div>
            <TextArea aria-label={`Message ${at + 1}`} rows={Math.min(12, Math.max(3, message.content.split('\n').length))} value={message.content} placeholder={message.role === 'system' ? 'How the model should behave' : 'Message'} onChange={(event) => change(at, { content: event.target.value })} />
          </li>
        ))}
      </ol>
      <div>
        <Button size="sm" icon={<Plus size={14} aria-hidden />} onClick={() => onChange([...messages, { role: messages.at(-1)?.role === 'user' ? 'assistant' : 'user', content: '' }])}>
          Add message
        </Button>
      </div>
    </div>
  )
}

function PromptPart({ choice, onChange }: { choice: PromptChoice; onChange(choice: PromptChoice): void }) {
  const { list, prompts } = usePrompts()
  const path = { namespace: choice.namespace, slug: choice.slug }
  const exists = choice.slug !== ''
  const detail = api.useQuery('get', '/api/v1/prompts/{namespace}/{slug}', { params: { path, query: { version: choice.version } } }, { enabled: exists })
  const latest = prompts.find((prompt) => prompt.namespace === choice.namespace && prompt.slug === choice.slug)?.version ?? choice.version ?? 1
  if (list.data && prompts.length === 0) return <p className="p-3 text-muted">There are no prompts yet. Write messages, and save them as the first version of one.</p>
  const name = `${choice.namespace}/${choice.slug}`
  return (
    <div className="flex flex-col gap-3 p-3">
      <div className="grid grid-cols-[minmax(0,1fr)_90px] gap-2">
        <Field label="Prompt">
          <Select
            value={name}
            onChange={(event) => {
              const [namespace = '', slug = ''] = event.target.value.split('/')
              onChange({ ...choice, namespace, slug, version: null })
            }}
            options={[...new Set([...(exists ? [name] : []), ...prompts.map((prompt) => `${prompt.namespace}/${prompt.slug}`)])]}
          />
        </Field>
        <Field label="Version">
          <Select value={String(choice.version ?? '')} onChange={(event) => onChange({ ...choice, version: event.target.value === '' ? null : Number(event.target.value) })} options={[{ value: '', label: 'latest' }, ...Array.from({ length: latest }, (_, at) => ({ value: String(latest - at), label: `v${latest - at}` }))]} />
        </Field>
      </div>
      {detail.data?.variables.map((variable) => (
        <Field key={variable} label={<code>{variable}</code>}>
          <TextArea rows={1} className="!min-h-[30px]" value={choice.values[variable] ?? ''} onChange={(event) => onChange({ ...choice, values: { ...choice.values, [variable]: event.target.value } })} />
        </Field>
      ))}
      {detail.data && <pre className="max-h-48 overflow-auto rounded-md border border-line bg-sunken p-3 break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label="Text of the prompt">{detail.data.content}</pre>}
    </div>
  )
}
