import { useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { signIn } from '@/api/auth'
import { refresh } from '@/api/query'
import { endSession, onSessionRefused, useSession } from '@/api/session'
import { Button, Dialog, ErrorLine, Field, Input, SecretInput } from '@/ui'

const WARN_MS = 5 * 60_000

/** Over the page, so that nothing that was typed is lost: when the token has ended, or is about to. */
export function SignInAgain() {
  const session = useSession()
  const navigate = useNavigate()
  const [why, setWhy] = useState<'ended' | 'soon' | null>(null)
  const [password, setPassword] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)

  useEffect(() => onSessionRefused(() => setWhy('ended')), [])
  useEffect(() => {
    if (!session) return
    setWhy(null)
    const wait = Math.max(0, session.expiresAt - WARN_MS - Date.now())
    const timer = setTimeout(() => setWhy((now) => now ?? 'soon'), wait)
    return () => clearTimeout(timer)
  }, [session])

  if (!session || !why) return null
  const submit = async () => {
    setBusy(true)
    setError(null)
    try {
      await signIn(session.email, password, session.orgId)
      setPassword('')
      setWhy(null)
      await refresh('/api/')
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const leave = () => {
    endSession()
    void navigate({ to: '/login', search: {} })
  }
  return (
    <Dialog
      open
      size="sm"
      onClose={() => (why === 'soon' ? setWhy(null) : undefined)}
      title={why === 'soon' ? 'Your session ends in a few minutes' : 'Your session has ended'}
      description="Sign in again to go on. This page stays as it is."
      onSubmit={() => void submit()}
      actions={
        <>
          <Button onClick={leave}>Sign out</Button>
          <Button kind="primary" type="submit" busy={busy}>
            Sign in
          </Button>
        </>
      }
    >
      <Field label="Email">
        <Input value={session.email} readOnly autoComplete="username" />
      </Field>
      <Field label="Password">
        <SecretInput value={password} required autoFocus autoComplete="current-password" onChange={(event) => setPassword(event.target.value)} />
      </Field>
      <ErrorLine error={error} />
    </Dialog>
  )
}
