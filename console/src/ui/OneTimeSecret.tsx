import { KeyRound } from 'lucide-react'
import type { ReactNode } from 'react'
import { Button } from './Button'
import { CopyButton } from './CopyButton'

interface SecretOnceProps {
  title: string
  secret: string
  children?: ReactNode
  onStored?: () => void
}

/** Shows a secret once. It must come from memory only: no storage, no URL, no query cache. */
export function OneTimeSecret({ title, secret, children, onStored }: SecretOnceProps) {
  return (
    <section className="card border-accent bg-accent-soft p-3" aria-label={title}>
      <div className="flex items-center gap-2">
        <KeyRound size={16} className="text-accent" aria-hidden />
        <h3 className="flex-1 text-sm">{title}</h3>
      </div>
      <div className="mt-2 flex flex-wrap items-center gap-2">
        <code data-secret className="min-w-0 flex-1 basis-64 rounded-sm border border-line bg-surface px-2 py-1.5 break-all select-all">
          {secret}
        </code>
        <CopyButton value={secret} label="Copy the secret" text="Copy" kind="primary" size="md" />
      </div>
      <div className="mt-2 flex flex-wrap items-center gap-2 text-xs text-muted">
        <div className="flex-1">{children ?? 'Copy it now, you won’t see it again. Store it where your other secrets are.'}</div>
        {onStored && (
          <Button size="sm" onClick={onStored}>
            I stored it
          </Button>
        )}
      </div>
    </section>
  )
}
