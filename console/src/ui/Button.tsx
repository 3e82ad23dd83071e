import { LoaderCircle } from 'lucide-react'
import { useId, type ButtonHTMLAttributes, type ReactNode, type Ref } from 'react'
import { useMe, type Role } from '@/api/me'
import { cx } from '@/lib/cx'

export interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, 'disabled'> {
  kind?: 'plain' | 'primary' | 'danger' | 'ghost'
  size?: 'md' | 'sm'
  icon?: ReactNode
  /** Icon-only button; requires `aria-label`. */
  square?: boolean
  busy?: boolean
  /** Required role. Without it the button is visible but disabled, with the reason as its description. */
  needs?: Role
  /** Reason why it is disabled. */
  blocked?: string | false | undefined
  ref?: Ref<HTMLButtonElement>
}

export function Button({ kind = 'plain', size = 'md', icon, square, busy, needs, blocked, children, className, onClick, ref, ...rest }: ButtonProps) {
  const id = useId()
  const reason = usePermissionReason(needs) ?? (blocked || null)
  const isDisabled = reason !== null || busy === true
  return (
    <>
      <button
        ref={ref}
        type="button"
        {...rest}
        className={cx('btn', kind !== 'plain' && `btn-${kind}`, size === 'sm' && 'btn-sm', square && 'btn-icon', className)}
        aria-disabled={isDisabled || undefined}
        aria-describedby={reason ? id : rest['aria-describedby']}
        aria-busy={busy || undefined}
        title={reason ?? rest.title}
        onClick={isDisabled ? (event) => event.preventDefault() : onClick}
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

/** The reason why the user lacks the required role, or null. */
export function usePermissionReason(needs: Role | undefined): string | null {
  const me = useMe()
  return needs && !me.hasRole(needs) ? `Needs the role ${needs}; you are ${me.role}` : null
}
