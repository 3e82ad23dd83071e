import { Field, Input, TextArea } from '@/ui'
import type { Params } from './setup'

/** Model parameters. Empty fields use the provider's default. */
export function ParamFields({ params, onChange, placeholder }: { params: Params; onChange(params: Params): void; placeholder?: Params }) {
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
      <Field label="Extra parameters (JSON)" hint="Merged into the request">
        <TextArea mono rows={1} className="!min-h-[30px]" value={params.more} placeholder={placeholder?.more || '{"seed": 7}'} onChange={(event) => onChange({ ...params, more: event.target.value })} />
      </Field>
    </div>
  )
}
