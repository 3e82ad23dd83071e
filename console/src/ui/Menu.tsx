import { DropdownMenu as Radix, Popover as RadixPopover } from 'radix-ui'
import { useId, type ReactNode } from 'react'
import { useMe, type Role } from '@/api/me'
import { cx } from '@/lib/cx'

interface MenuProps {
  trigger: ReactNode
  children: ReactNode
  align?: 'start' | 'end'
}

/** Dropdown menu. */
export function Menu({ trigger, children, align = 'end' }: MenuProps) {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger asChild>{trigger}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content align={align} sideOffset={4} collisionPadding={8} className="popup min-w-44">
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

interface MenuItemProps {
  children: ReactNode
  icon?: ReactNode
  onSelect(): void
  danger?: boolean
  needs?: Role
  blocked?: string | false | undefined
  keys?: string
}

export function MenuItem({ children, icon, onSelect, danger, needs, blocked, keys }: MenuItemProps) {
  const me = useMe()
  const id = useId()
  const reason = needs && !me.hasRole(needs) ? `Needs the role ${needs}` : blocked || null
  return (
    <Radix.Item className={cx('popup-item', danger && 'text-err')} disabled={reason !== null} onSelect={onSelect} aria-describedby={reason ? id : undefined}>
      {icon}
      <span className="flex-1">
        {children}
        {reason && (
          <span id={id} className="block text-xs text-muted">
            {reason}
          </span>
        )}
      </span>
      {keys && <kbd className="kbd">{keys}</kbd>}
    </Radix.Item>
  )
}

export function MenuChoice({ checked, children, onSelect }: { checked: boolean; children: ReactNode; onSelect(): void }) {
  return (
    <Radix.CheckboxItem className="popup-item" checked={checked} onSelect={(event) => event.preventDefault()} onCheckedChange={onSelect}>
      <span className="w-3.5 text-accent" aria-hidden>
        {checked && '✓'}
      </span>
      {children}
    </Radix.CheckboxItem>
  )
}

export const MenuLabel = ({ children }: { children: ReactNode }) => <Radix.Label className="px-2 pt-1.5 pb-1 text-xs text-muted">{children}</Radix.Label>
export const MenuLine = () => <Radix.Separator className="my-1 h-px bg-line" />

interface PopoverProps extends MenuProps {
  label: string
  open?: boolean
  onOpenChange?: (open: boolean) => void
}

/** Popover panel. */
export function Popover({ trigger, children, align = 'start', label, open, onOpenChange }: PopoverProps) {
  return (
    <RadixPopover.Root open={open} onOpenChange={onOpenChange}>
      <RadixPopover.Trigger asChild>{trigger}</RadixPopover.Trigger>
      <RadixPopover.Portal>
        <RadixPopover.Content align={align} sideOffset={4} collisionPadding={8} aria-label={label} className="popup">
          {children}
        </RadixPopover.Content>
      </RadixPopover.Portal>
    </RadixPopover.Root>
  )
}
