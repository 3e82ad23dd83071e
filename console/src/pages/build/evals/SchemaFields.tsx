import { fieldName, type FormValues, type SchemaField } from '@/lib/schemaForm'
import { Field, Input, Select, TextArea } from '@/ui'

interface SchemaFieldsProps {
  fields: readonly SchemaField[]
  typed: FormValues
  problems: Readonly<Record<string, string>>
  onChange(typed: FormValues): void
}

/** Form generated from the JSON Schema of the evaluator config. */
export function SchemaFields({ fields, typed, problems, onChange }: SchemaFieldsProps) {
  return (
    <>
      {fields.map((field) => (
        <Field key={field.name} label={labelOf(field)} hint={field.kind === 'list' ? `${field.description ?? ''} One per line.`.trim() : field.description} error={problems[field.name]}>
          <Control field={field} value={typed[field.name] ?? ''} onChange={(value) => onChange({ ...typed, [field.name]: value })} />
        </Field>
      ))}
    </>
  )
}

function labelOf(field: SchemaField): string {
  const note = field.required ? '' : field.alternative === null ? ' (optional)' : ` (this or “${fieldName(field.alternative)}”)`
  return `${fieldName(field.name)}${note}`
}

function Control({ field, value, onChange }: { field: SchemaField; value: string; onChange(value: string): void }) {
  const fallback = field.defaultValue === undefined || field.defaultValue === null ? '' : String(field.defaultValue)
  const inputProps = { required: field.required, value, placeholder: fallback }
  switch (field.kind) {
    case 'number':
      return <Input type="number" step={field.integer ? 1 : 'any'} min={field.min ?? undefined} max={field.max ?? undefined} {...inputProps} onChange={(event) => onChange(event.target.value)} />
    case 'boolean':
      return <Select value={value || fallback} onChange={(event) => onChange(event.target.value)} options={[{ value: 'true', label: 'Yes' }, { value: 'false', label: 'No' }]} />
    case 'choice':
      return <Select value={value} onChange={(event) => onChange(event.target.value)} options={[...(field.required ? [] : [{ value: '', label: 'default' }]), ...field.choices]} />
    case 'list':
    case 'long':
    case 'json':
      return <TextArea mono={field.kind !== 'long'} rows={field.kind === 'json' ? 6 : 3} {...inputProps} placeholder={field.kind === 'json' ? '{"type": "object"}' : fallback} onChange={(event) => onChange(event.target.value)} />
    case 'text':
    case 'literal':
      return <Input mono {...inputProps} onChange={(event) => onChange(event.target.value)} />
  }
}
