import { LoaderCircle } from 'lucide-react'
import { useId, type ButtonHTMLAttributes, type ReactNode, type Ref } from 'react'
import { useMe, type Role } from '@/api/me'
import { cx } from '@/lib/cx'

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, 'disabled'> {
  kind?: 'plain' | 'primary' | 'danger' | 'ghost'
  size?: 'md' | 'sm'
  icon?: ReactNode
  /** An icon alone; then `aria-label` is needed. */
  square?: boolean
  busy?: boolean
  /** The role that this needs. Without it the button stays visible, cannot be used, and says why. */
  needs?: Role
  /** Why it cannot be used now. */
  blocked?: string | false | undefined
  ref?: Ref<HTMLButtonElement>
}

export function Button({ kind = 'plain', size = 'md', icon, square, busy, needs, blocked, children, className, onClick, ref, ...rest }: ButtonProps) {
  const id = useId()
  const reason = useReason(needs) ?? (blocked || null)
  const off = reason !== null || busy === true
  return (
    <>
      <button
        ref={ref}
        type="button"
        {...rest}
        className={cx('btn', kind !== 'plain' && `btn-${kind}`, size === 'sm' && 'btn-sm', square && 'btn-icon', className)}
        aria-disabled={off || undefined}
        aria-describedby={reason ? id : rest['aria-describedby']}
        aria-busy={busy || undefined}
        title={reason ?? rest.title}
        onClick={off ? (event) => event.preventDefault() : onClick}
      >
        {busy ? <LoaderCircle size={14} className="animate-spin" aria-hidden /> : icon}
        {children}
      </button>
      {reason && (
        <span id={id} hidden>
          {reason}
        </span>
      )}
    </>
  )
}

/** Why a person of this role may not do it, or null. */
export function useReason(needs: Role | undefined): string | null {
  const me = useMe()
  return needs && !me.may(needs) ? `Needs the role ${needs}; you are ${me.role}` : null
}
