import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { acceptInvite, signInInvited, signUp } from '@/api/auth'
import { useSession } from '@/api/session'
import { Field, Input, SecretInput } from '@/ui'
import { AuthForm } from './AuthForm'

const route = getRouteApi('/invite/$token')

/** Accepts an invitation: as the user who is signed in, with an account that exists, or with a new one. */
export function Invite() {
  const session = useSession()
  const [mode, setMode] = useState<'session' | 'account' | 'new'>(session ? 'session' : 'new')
  if (mode === 'session' && session) return <WithSession email={session.email} onOther={() => setMode('account')} />
  if (mode === 'account') return <WithAccount onOther={() => setMode('new')} />
  return <WithNewAccount onOther={() => setMode('account')} />
}

function WithSession({ email, onOther }: { email: string; onOther: () => void }) {
  const { token } = route.useParams()
  const navigate = useNavigate()
  return (
    <AuthForm
      title="Accept the invitation"
      about={`You are signed in as ${email}.`}
      action="Join"
      onSubmit={async () => {
        await acceptInvite(token)
        await navigate({ to: '/' })
      }}
      below={<Other label="Is the invitation for another address?" action="Sign in with it" onClick={onOther} />}
    >
      {() => null}
    </AuthForm>
  )
}

function WithAccount({ onOther }: { onOther: () => void }) {
  const { token } = route.useParams()
  const navigate = useNavigate()
  return (
    <AuthForm
      title="Accept the invitation"
      about="Sign in with the address that the invitation was sent to."
      action="Sign in and join"
      onSubmit={async ({ email = '', password = '' }) => {
        await signInInvited(email, password, token)
        await navigate({ to: '/' })
      }}
      below={<Other label="No account yet?" action="Create one" onClick={onOther} />}
    >
      {(error) => (
        <>
          <Field label="Email" error={error?.fields['email'] ?? error?.fields['invite_token']}>
            <Input name="email" type="email" required autoFocus autoComplete="username" />
          </Field>
          <Field label="Password" error={error?.fields['password']}>
            <SecretInput name="password" required autoComplete="current-password" />
          </Field>
        </>
      )}
    </AuthForm>
  )
}

function WithNewAccount({ onOther }: { onOther: () => void }) {
  const { token } = route.useParams()
  const navigate = useNavigate()
  return (
    <AuthForm
      title="Accept the invitation"
      about="Choose a password to join the organization. Use the address that the invitation was sent to."
      action="Join"
      onSubmit={async ({ email = '', password = '', display_name = '' }) => {
        await signUp({ email, password, display_name: display_name || null, invite_token: token })
        await navigate({ to: '/' })
      }}
      below={<Other label="Already have an account?" action="Sign in" onClick={onOther} />}
    >
      {(error) => (
        <>
          <Field label="Email" error={error?.fields['email'] ?? error?.fields['invite_token']}>
            <Input name="email" type="email" required autoFocus autoComplete="username" />
          </Field>
          <Field label="Name" hint="Shown to the other members" error={error?.fields['display_name']}>
            <Input name="display_name" autoComplete="name" maxLength={100} />
          </Field>
          <Field label="Password" hint="8 characters or more" error={error?.fields['password']}>
            <SecretInput name="password" required minLength={8} maxLength={256} autoComplete="new-password" />
          </Field>
        </>
      )}
    </AuthForm>
  )
}

function Other({ label, action, onClick }: { label: string; action: string; onClick: () => void }) {
  return (
    <>
      {label}{' '}
      <button type="button" className="font-medium text-accent underline" onClick={onClick}>
        {action}
      </button>
    </>
  )
}
