import { useState, type ReactNode } from 'react'
import { CopyButton } from './CopyButton'
import { Tabs } from './Tabs'

interface CodeProps {
  code: string
  /** What is copied, where that differs from what is shown: a masked key. */
  copy?: () => string
  label?: string
  onCopied?: () => void
}

/** A text in monospace with a button that copies it. */
export function Code({ code, copy, label = 'Code', onCopied }: CodeProps) {
  return (
    <div className="relative rounded-md border border-line bg-sunken">
      <pre className="overflow-x-auto p-3 pr-12 leading-relaxed" role="region" tabIndex={0} aria-label={label}>
        {code}
      </pre>
      <div className="absolute top-1.5 right-1.5 rounded-sm bg-sunken">
        <CopyButton value={copy ?? code} label={`Copy ${label.toLowerCase()}`} onCopied={onCopied} />
      </div>
    </div>
  )
}

export interface Snippet {
  name: string
  code: string
  copy?: () => string
  note?: ReactNode
}

/** The same in several languages. */
export function Snippets({ label, snippets, onCopied, onChange }: { label: string; snippets: readonly Snippet[]; onCopied?: () => void; onChange?: (name: string) => void }) {
  const [chosen, setChosen] = useState(snippets[0]?.name ?? '')
  const value = snippets.some((snippet) => snippet.name === chosen) ? chosen : (snippets[0]?.name ?? '')
  return (
    <Tabs
      label={label}
      value={value}
      onChange={(name) => {
        setChosen(name)
        onChange?.(name)
      }}
      items={snippets.map((snippet) => ({
        value: snippet.name,
        label: snippet.name,
        content: (
          <div className="flex flex-col gap-2 pt-3">
            <Code code={snippet.code} copy={snippet.copy} label={snippet.name} onCopied={onCopied} />
            {snippet.note && <p className="text-xs text-muted">{snippet.note}</p>}
          </div>
        ),
      }))}
    />
  )
}
