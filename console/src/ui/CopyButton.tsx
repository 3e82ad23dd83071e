import { Check, Copy } from 'lucide-react'
import { useEffect, useState } from 'react'
import { copyText } from '@/lib/clipboard'
import { Button } from './Button'

interface CopyButtonProps {
  /** A function if the text is expensive to build or must not be in the page. */
  value: string | (() => string)
  label?: string
  /** Visible label. */
  text?: string
  size?: 'md' | 'sm'
  kind?: 'plain' | 'primary' | 'ghost'
  onCopied?: () => void
}

export function CopyButton({ value, label = 'Copy', text, size = 'sm', kind = 'ghost', onCopied }: CopyButtonProps) {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), 1600)
    return () => clearTimeout(timer)
  }, [copied])
  const copy = async () => {
    const done = await copyText(typeof value === 'function' ? value() : value)
    setCopied(done)
    if (done) onCopied?.()
  }
  return (
    <>
      <Button
        kind={kind}
        size={size}
        square={!text}
        aria-label={text ? undefined : label}
        title={label}
        icon={copied ? <Check size={14} className={kind === 'primary' ? undefined : 'text-ok'} aria-hidden /> : <Copy size={14} aria-hidden />}
        onClick={() => void copy()}
      >
        {text && (copied ? 'Copied' : text)}
        {text && label.startsWith(text) && <span className="sr-only">{label.slice(text.length)}</span>}
      </Button>
      <span className="sr-only" aria-live="polite">
        {copied ? 'Copied' : ''}
      </span>
    </>
  )
}
