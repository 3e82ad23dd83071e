import type { Action } from '@/lib/useAction'
import { Button } from './Button'
import { Dialog, type DialogProps } from './Dialog'
import { ErrorLine } from './ErrorPanel'

interface FormDialogProps extends Pick<DialogProps, 'title' | 'description' | 'size' | 'children' | 'onClose'> {
  /** What happens when the form is sent. */
  action: Action<[]>
  /** "Create key" */
  submit: string
  blocked?: string | false | undefined
  /** Fields that say themselves what is wrong with them. */
  fields?: readonly string[]
}

/** A form in a dialog. What the server refused stands at its field, or at the end when it is about none of them. */
export function FormDialog({ action, submit, blocked, fields = [], children, onClose, ...rest }: FormDialogProps) {
  const isShown = Object.keys(action.fields).some((field) => fields.includes(field))
  return (
    <Dialog
      open
      onClose={onClose}
      {...rest}
      onSubmit={action.run}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" busy={action.busy} blocked={blocked}>
            {submit}
          </Button>
        </>
      }
    >
      {children}
      {!isShown && <ErrorLine error={action.error} />}
    </Dialog>
  )
}
