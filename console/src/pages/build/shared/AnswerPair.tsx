import { useState, type ReactNode } from 'react'
import { CopyButton, Tabs } from '@/ui'
import { DiffView } from '@/ui/DiffView'

export interface Answer {
  /** "Original", "Replay", or the model. */
  title: string
  /** Null if there is none; `empty` says why. */
  text: string | null
  empty?: string
  figures?: ReactNode
}

/** Two answers side by side, or their differences. The view stays while rows are stepped through. */
export function AnswerPair({ a, b }: { a: Answer; b: Answer }) {
  const [view, setView] = useState<'both' | 'diff'>('both')
  const comparable = a.text !== null && b.text !== null
  return (
    <Tabs
      label="Answers"
      value={view}
      onChange={(next) => setView(next)}
      items={[
        {
          value: 'both',
          label: 'Both answers',
          content: (
            <div className="@container pt-3">
              <div className="grid gap-3 @lg:grid-cols-2">
                <AnswerCard answer={a} />
                <AnswerCard answer={b} />
              </div>
            </div>
          ),
        },
        {
          value: 'diff',
          label: 'Differences',
          content: (
            <div className="pt-3">
              {comparable ? <DiffView before={a.text ?? ''} after={b.text ?? ''} label={`Differences from ${a.title} to ${b.title}`} /> : <p className="text-muted">Both answers are needed for a comparison.</p>}
            </div>
          ),
        },
      ]}
    />
  )
}

export function AnswerCard({ answer: { title, text, empty = 'No text', figures } }: { answer: Answer }) {
  return (
    <section className="card flex min-w-0 flex-col" aria-label={title}>
      <header className="flex min-h-9 items-center gap-2 border-b border-line px-3">
        <h3 className="name min-w-0 flex-1 truncate text-xs font-medium" title={title}>
          {title}
        </h3>
        {text !== null && text !== '' && <CopyButton value={text} label={`Copy: ${title}`} />}
      </header>
      {figures && <div className="border-b border-line px-3 py-1.5 text-xs tabular-nums">{figures}</div>}
      <div className="max-h-96 overflow-y-auto p-3 break-words whitespace-pre-wrap" role="region" tabIndex={0} aria-label={`Text of ${title}`}>
        {text === null || text === '' ? <span className="text-muted">{empty}</span> : text}
      </div>
    </section>
  )
}
