import { Check } from 'lucide-react'
import type { ReactNode } from 'react'
import { cx } from '@/lib/cx'

/** One onboarding step with a completion mark. */
export function Step({ number, title, done, children }: { number: number; title: string; done: boolean; children: ReactNode }) {
  return (
    <li className="card flex min-w-0 flex-col gap-3 p-4">
      <div className="flex items-center gap-3">
        <span className={cx('grid size-6 shrink-0 place-items-center rounded-full text-xs font-semibold', done ? 'bg-ok-soft text-ok' : 'bg-sunken text-muted')}>
          {done ? <Check size={14} aria-label="Done" /> : number}
        </span>
        <h2 className="text-base leading-6">{title}</h2>
      </div>
      <div className="flex min-w-0 flex-col gap-3 sm:pl-9">{children}</div>
    </li>
  )
}
