import type { ReactNode } from 'react'
import type { Action } from '@/lib/useAction'
import { Button } from './Button'
import { Dialog, type DialogProps } from './Dialog'
import { ErrorLine } from './ErrorPanel'

interface FormDialogProps extends Pick<DialogProps, 'title' | 'description' | 'size' | 'children' | 'onClose'> {
  /** Submit action. */
  action: Action<[]>
  /** "Create key" */
  submit: string
  blocked?: string | false | undefined
  /** Another button beside the submit button. */
  also?: ReactNode
  /** Names of the fields that display their own errors. */
  fields?: readonly string[]
}

/** Form dialog. Server errors are shown at their field, or below the form if no field matches. */
export function FormDialog({ action, submit, blocked, also, fields = [], children, onClose, ...rest }: FormDialogProps) {
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
          {also}
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
