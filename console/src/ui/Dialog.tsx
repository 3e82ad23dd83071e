import { X } from 'lucide-react'
import { Dialog as Radix } from 'radix-ui'
import { useState, type ReactNode, type SyntheticEvent } from 'react'
import { asApiError } from '@/api/error'
import { cx } from '@/lib/cx'
import { Button } from './Button'
import { ErrorLine } from './ErrorPanel'
import { Field, Input } from './Field'

export interface DialogProps {
  open: boolean
  onClose(): void
  title: ReactNode
  description?: ReactNode
  children?: ReactNode
  /** Footer buttons. */
  actions?: ReactNode
  size?: 'sm' | 'md' | 'lg'
  /** If given, the dialog is a form. */
  onSubmit?: () => void
}

const WIDTH = { sm: 'max-w-[420px]', md: 'max-w-[560px]', lg: 'max-w-[880px]' }

/** Modal dialog that traps focus and restores it on close. */
export function Dialog({ open, onClose, title, description, children, actions, size = 'md', onSubmit }: DialogProps) {
  const Body = onSubmit ? 'form' : 'div'
  return (
    <Radix.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="scrim" />
        <Radix.Content
          data-modal="true"
          {...(description ? {} : { 'aria-describedby': undefined })}
          className={cx('fixed top-[8vh] left-1/2 z-50 flex max-h-[84vh] w-[calc(100vw-24px)] -translate-x-1/2 flex-col rounded-md border border-line bg-raised shadow-float', WIDTH[size])}
        >
          <Body
            className="flex min-h-0 flex-col"
            {...(onSubmit && {
              onSubmit: (event: SyntheticEvent) => {
                event.preventDefault()
                // React events bubble through portals: do not submit the outer form of a nested dialog.
                event.stopPropagation()
                onSubmit()
              },
            })}
          >
            <header className="flex items-start gap-3 px-4 pt-3 pb-2">
              <div className="min-w-0 flex-1">
                <Radix.Title className="text-lg break-words">{title}</Radix.Title>
                {description && <Radix.Description className="mt-0.5 text-muted">{description}</Radix.Description>}
              </div>
              <Radix.Close className="btn btn-ghost btn-icon btn-sm" aria-label="Close" type="button">
                <X size={16} aria-hidden />
              </Radix.Close>
            </header>
            <div className="flex min-h-0 flex-1 flex-col gap-3 overflow-y-auto px-4 py-2">{children}</div>
            {actions && <footer className="flex flex-wrap justify-end gap-2 px-4 pt-2 pb-4">{actions}</footer>}
          </Body>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

export interface ConfirmProps {
  open: boolean
  onClose(): void
  /** "Delete prompt support/greeting?" */
  title: ReactNode
  /** Consequences of the deletion. */
  children: ReactNode
  /** "Delete prompt" */
  action: string
  /** Text that the user must type to confirm an irreversible deletion. */
  typeToConfirm?: string
  onConfirm(): Promise<unknown>
  /** Default: `danger`. */
  tone?: 'danger' | 'primary'
}

/** Confirmation dialog for destructive actions. On failure it stays open and shows the error. */
export function ConfirmDialog({ open, onClose, title, children, action, typeToConfirm, onConfirm, tone = 'danger' }: ConfirmProps) {
  const [typed, setTyped] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const close = () => {
    setTyped('')
    setError(null)
    onClose()
  }
  const confirm = async () => {
    setBusy(true)
    setError(null)
    try {
      await onConfirm()
      close()
    } catch (failure) {
      setError(asApiError(failure))
    } finally {
      setBusy(false)
    }
  }
  const ready = !typeToConfirm || typed === typeToConfirm
  return (
    <Dialog
      open={open}
      onClose={close}
      title={title}
      size="sm"
      onSubmit={() => ready && void confirm()}
      actions={
        <>
          <Button onClick={close}>Cancel</Button>
          <Button kind={tone} type="submit" busy={busy} blocked={!ready && `Type ${typeToConfirm} first`}>
            {action}
          </Button>
        </>
      }
    >
      <div className="text-muted">{children}</div>
      {typeToConfirm && (
        <Field label={<>Type <code className="rounded-sm bg-sunken px-1">{typeToConfirm}</code> to confirm</>}>
          <Input mono value={typed} onChange={(event) => setTyped(event.target.value)} autoFocus />
        </Field>
      )}
      <ErrorLine error={error} />
    </Dialog>
  )
}
