import { Plus } from 'lucide-react'
import { useState } from 'react'
import { Button, Field, Input, TextArea } from '@/ui'
import { addTool, toolNames, type Params } from './setup'

/** Model parameters. Empty fields use the provider's default. */
export function ParamFields({ params, onChange, placeholder }: { params: Params; onChange(params: Params): void; placeholder?: Params }) {
  const [opened, setOpened] = useState(false)
  const names = toolNames(params.tools)
  const open = opened || params.tools !== '' || params.schema !== ''
  const number = (name: 'temperature' | 'max_tokens' | 'top_p', label: string, step: string) => (
    <Field label={label}>
      <Input type="number" min={0} step={step} value={params[name]} placeholder={placeholder?.[name] || 'default'} onChange={(event) => onChange({ ...params, [name]: event.target.value })} />
    </Field>
  )
  return (
    <div className="flex flex-col gap-2">
      <div className="grid grid-cols-3 gap-2">
        {number('temperature', 'Temperature', '0.1')}
        {number('max_tokens', 'Max tokens', '1')}
        {number('top_p', 'Top p', '0.05')}
      </div>
      {open ? (
        <>
          <Field label="Tools (JSON array)" hint={names && names.length > 0 ? `${names.join(', ')}. Tools are not run: you add their results to the messages` : 'Tools are not run: you add their results to the messages'} error={params.tools.trim() !== '' && names === null ? 'Not a JSON array' : null}>
            <TextArea mono rows={Math.min(12, Math.max(4, params.tools.split('\n').length))} value={params.tools} placeholder={placeholder?.tools || '[{"type": "function", "function": {"name": "weather"}}]'} onChange={(event) => onChange({ ...params, tools: event.target.value })} />
          </Field>
          <div>
            <Button size="sm" blocked={params.tools.trim() !== '' && names === null && 'The tools are not a JSON array'} icon={<Plus size={14} aria-hidden />} onClick={() => onChange({ ...params, tools: addTool(params.tools) })}>
              Add tool
            </Button>
          </div>
          <Field label="JSON schema of the answer" hint="Sent as response_format. With “strict”: {&quot;name&quot;, &quot;strict&quot;, &quot;schema&quot;}">
            <TextArea mono rows={4} value={params.schema} placeholder={placeholder?.schema || '{"type": "object"}'} onChange={(event) => onChange({ ...params, schema: event.target.value })} />
          </Field>
        </>
      ) : (
        <div>
          <Button size="sm" onClick={() => setOpened(true)}>
            Tools and JSON schema
          </Button>
        </div>
      )}
      <Field label="Extra parameters (JSON)" hint="Merged into the request">
        <TextArea mono rows={1} className="!min-h-[30px]" value={params.more} placeholder={placeholder?.more || '{"seed": 7}'} onChange={(event) => onChange({ ...params, more: event.target.value })} />
      </Field>
    </div>
  )
}
