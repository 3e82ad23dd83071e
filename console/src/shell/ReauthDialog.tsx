import { useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { signIn } from '@/api/auth'
import { invalidate } from '@/api/query'
import { endSession, onSessionExpired, useSession } from '@/api/session'
import { Button, Dialog, ErrorLine, Field, Input, SecretInput } from '@/ui'

const EXPIRY_WARNING_MS = 5 * 60_000

/** Asks for the password when the token has expired or is about to. A dialog keeps the page and its unsaved input. */
export function ReauthDialog() {
  const session = useSession()
  const navigate = useNavigate()
  const [reason, setReason] = useState<'ended' | 'soon' | null>(null)
  const [password, setPassword] = useState('')
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)

  useEffect(() => onSessionExpired(() => setReason('ended')), [])
  useEffect(() => {
    if (!session) return
    setReason(null)
    const delay = Math.max(0, session.expiresAt - EXPIRY_WARNING_MS - Date.now())
    const timer = setTimeout(() => setReason((now) => now ?? 'soon'), delay)
    return () => clearTimeout(timer)
  }, [session])

  if (!session || !reason) return null
  const submit = async () => {
    setBusy(true)
    setError(null)
    try {
      await signIn(session.email, password, session.orgId)
      setPassword('')
      setReason(null)
      await invalidate('/api/')
    } catch (failure) {
      setError(failure)
    } finally {
      setBusy(false)
    }
  }
  const signOut = () => {
    endSession()
    void navigate({ to: '/login', search: {} })
  }
  return (
    <Dialog
      open
      size="sm"
      onClose={() => (reason === 'soon' ? setReason(null) : undefined)}
      title={reason === 'soon' ? 'Your session ends in a few minutes' : 'Your session has ended'}
      description="Sign in again to continue. This page stays as it is."
      onSubmit={() => void submit()}
      actions={
        <>
          <Button onClick={signOut}>Sign out</Button>
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
