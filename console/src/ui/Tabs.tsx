import { Tabs as Radix } from 'radix-ui'
import type { ReactNode } from 'react'

export interface TabItem<T extends string> {
  value: T
  label: ReactNode
  content: ReactNode
}

interface TabsProps<T extends string> {
  label: string
  value: T
  onChange(value: T): void
  items: readonly TabItem<T>[]
  /** Content at the end of the tab list. */
  aside?: ReactNode
}

/** Controlled tabs. Keep the value in the URL if it should be shareable. */
export function Tabs<T extends string>({ label, value, onChange, items, aside }: TabsProps<T>) {
  return (
    <Radix.Root value={value} onValueChange={(next) => onChange(next as T)} className="flex min-h-0 flex-col">
      <div className="flex items-center gap-2 border-b border-line">
        <Radix.List aria-label={label} className="flex min-w-0 flex-1 overflow-x-auto overflow-y-hidden px-2 max-sm:flex-wrap">
          {items.map((item) => (
            <Radix.Trigger key={item.value} value={item.value} className="tab">
              {item.label}
            </Radix.Trigger>
          ))}
        </Radix.List>
        {aside && <div className="pr-2">{aside}</div>}
      </div>
      {items.map((item) => (
        <Radix.Content key={item.value} value={item.value} className="min-h-0">
          {item.content}
        </Radix.Content>
      ))}
    </Radix.Root>
  )
}
