import { Eye, EyeOff } from 'lucide-react'
import { createContext, use, useId, useState, type InputHTMLAttributes, type ReactNode, type Ref, type SelectHTMLAttributes, type TextareaHTMLAttributes } from 'react'
import { cx } from '@/lib/cx'

interface FieldIds {
  id: string
  describedBy: string | undefined
  invalid: boolean
}

const FieldContext = createContext<FieldIds | null>(null)

export interface FieldProps {
  label: ReactNode
  hint?: ReactNode
  error?: string | null | undefined
  /** Hides the label visually. */
  quiet?: boolean
  className?: string
  children: ReactNode
}

/** Form field: a label, one control (`Input`, `TextArea`, `Select`), a hint and an error message. */
export function Field({ label, hint, error, quiet, className, children }: FieldProps) {
  const id = useId()
  const describedBy = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined
  return (
    <div className={cx('flex flex-col gap-1', className)}>
      <label htmlFor={id} className={quiet ? 'sr-only' : 'text-sm font-medium'}>
        {label}
      </label>
      <FieldContext value={{ id, describedBy, invalid: Boolean(error) }}>{children}</FieldContext>
      {hint && (
        <p id={`${id}-hint`} className="text-xs text-muted">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} className="text-xs text-err" role="alert">
          {error}
        </p>
      )}
    </div>
  )
}

function useFieldProps() {
  const field = use(FieldContext)
  return field ? { id: field.id, 'aria-describedby': field.describedBy, 'aria-invalid': field.invalid || undefined } : {}
}

export interface InputProps extends InputHTMLAttributes<HTMLInputElement> {
  mono?: boolean
  ref?: Ref<HTMLInputElement>
}

export function Input({ mono, className, ...rest }: InputProps) {
  return <input type="text" autoComplete="off" spellCheck={false} {...useFieldProps()} {...rest} className={cx('input', mono && 'font-mono text-xs', className)} />
}

/** Password input with a reveal button. */
export function SecretInput({ className, ...rest }: InputProps) {
  const [shown, setShown] = useState(false)
  const Icon = shown ? EyeOff : Eye
  return (
    <div className="relative">
      <Input {...rest} type={shown ? 'text' : 'password'} className={cx('pr-9', className)} />
      <button type="button" className="btn btn-ghost btn-icon btn-sm absolute top-0.5 right-0.5" aria-label={shown ? 'Hide' : 'Show'} aria-pressed={shown} onClick={() => setShown(!shown)}>
        <Icon size={14} aria-hidden />
      </button>
    </div>
  )
}

export interface TextAreaProps extends TextareaHTMLAttributes<HTMLTextAreaElement> {
  mono?: boolean
  ref?: Ref<HTMLTextAreaElement>
}

export function TextArea({ mono, className, ...rest }: TextAreaProps) {
  return <textarea autoComplete="off" spellCheck={!mono} {...useFieldProps()} {...rest} className={cx('input', mono && 'font-mono text-xs', className)} />
}

export interface SelectProps extends SelectHTMLAttributes<HTMLSelectElement> {
  options?: readonly (string | { value: string; label: string; disabled?: boolean })[]
  ref?: Ref<HTMLSelectElement>
}

/** Native select, for its keyboard, touch and screen reader support. */
export function Select({ options, className, children, ...rest }: SelectProps) {
  return (
    <select {...useFieldProps()} {...rest} className={cx('input', className)}>
      {children}
      {options?.map((option) => {
        const { value, label, disabled } = typeof option === 'string' ? { value: option, label: option, disabled: false } : option
        return (
          <option key={value} value={value} disabled={disabled}>
            {label}
          </option>
        )
      })}
    </select>
  )
}

interface ToggleProps extends Omit<InputHTMLAttributes<HTMLInputElement>, 'type'> {
  label: ReactNode
  hint?: ReactNode
  /** Hides the label visually. */
  quiet?: boolean
}

function Toggle({ label, hint, quiet, className, kind, ...rest }: ToggleProps & { kind: 'check' | 'switch' | 'radio' }) {
  const id = useId()
  return (
    <div className={cx('flex items-start gap-2', className)}>
      <input
        id={id}
        type={kind === 'radio' ? 'radio' : 'checkbox'}
        role={kind === 'switch' ? 'switch' : undefined}
        aria-describedby={hint ? `${id}-hint` : undefined}
        {...rest}
        className={cx(kind === 'switch' ? 'switch' : 'check', 'mt-px')}
      />
      <div className={quiet ? 'sr-only' : undefined}>
        <label htmlFor={id}>{label}</label>
        {hint && (
          <p id={`${id}-hint`} className="text-xs text-muted">
            {hint}
          </p>
        )}
      </div>
    </div>
  )
}

export const Checkbox = (props: ToggleProps) => <Toggle kind="check" {...props} />
export const Radio = (props: ToggleProps) => <Toggle kind="radio" {...props} />
export const Switch = (props: ToggleProps) => <Toggle kind="switch" {...props} />
