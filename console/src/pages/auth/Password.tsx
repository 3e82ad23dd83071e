import { useState, type FormEvent } from 'react'
import { client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, Field, SecretInput, Section, toast } from '@/ui'

/** Changes the password of the user, which ends all other sessions. */
export function Password() {
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  const change = useAction(async () => {
    await unwrap(client.POST('/api/v1/auth/password', { body: { current_password: current, new_password: next } }))
    setCurrent('')
    setNext('')
    await invalidate('/api/v1/auth')
    toast('Password changed')
  })
  const submit = (event: FormEvent): void => {
    event.preventDefault()
    change.run()
  }
  return (
    <Section title="Password">
      <form className="flex flex-col gap-3" onSubmit={submit}>
        <div className="grid gap-3 sm:grid-cols-2">
          <Field label="Current password">
            <SecretInput value={current} required autoComplete="current-password" onChange={(event) => setCurrent(event.target.value)} />
          </Field>
          <Field label="New password" hint="8 characters or more" error={change.fields['new_password']}>
            <SecretInput value={next} required minLength={8} maxLength={256} autoComplete="new-password" onChange={(event) => setNext(event.target.value)} />
          </Field>
        </div>
        <ErrorLine error={change.error} />
        <div className="flex items-center gap-3">
          <Button type="submit" busy={change.busy}>
            Change password
          </Button>
          <span className="text-xs text-muted">Ends all your other sessions.</span>
        </div>
      </form>
    </Section>
  )
}
