import { useState, type ReactNode } from 'react'
import { CopyButton } from './CopyButton'
import { Tabs } from './Tabs'

interface CodeProps {
  code: string
  /** Text to copy if it differs from the displayed text, e.g. for a masked key. */
  copy?: () => string
  label?: string
}

/** Code block with a copy button. */
export function Code({ code, copy, label = 'Code' }: CodeProps) {
  return (
    <div className="flex items-start rounded-md border border-line bg-sunken">
      <Listing code={code} label={label} />
      <div className="p-1.5">
        <CopyButton value={copy ?? code} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  )
}

function Listing({ code, label }: { code: string; label: string }) {
  return (
    <pre className="min-w-0 flex-1 overflow-x-auto p-3 leading-relaxed" role="region" tabIndex={0} aria-label={label}>
      {code}
    </pre>
  )
}

export interface Snippet {
  name: string
  code: string
  copy?: () => string
  note?: ReactNode
}

/** Code snippets in several languages, as tabs. */
export function Snippets({ label, snippets, onCopied, onChange }: { label: string; snippets: readonly Snippet[]; onCopied?: () => void; onChange?: (name: string) => void }) {
  const [chosen, setChosen] = useState(0)
  const current = snippets[chosen] ?? snippets[0]
  return (
    <Tabs
      label={label}
      // Ids are made of the value, and must not have the spaces of a name.
      value={String(chosen)}
      aside={current && <CopyButton value={current.copy ?? current.code} label={`Copy ${current.name}`} text="Copy" onCopied={onCopied} />}
      onChange={(value) => {
        setChosen(Number(value))
        onChange?.(snippets[Number(value)]?.name ?? '')
      }}
      items={snippets.map((snippet, at) => ({
        value: String(at),
        label: snippet.name,
        content: (
          <div className="flex flex-col gap-2 pt-3">
            <div className="rounded-md border border-line bg-sunken">
              <Listing code={snippet.code} label={snippet.name} />
            </div>
            {snippet.note && <p className="text-xs text-muted">{snippet.note}</p>}
          </div>
        ),
      }))}
    />
  )
}
