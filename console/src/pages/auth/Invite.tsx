import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { signUp } from '@/api/auth'
import { Field, Input, SecretInput } from '@/ui'
import { AuthForm, ToSignIn } from './AuthForm'

const route = getRouteApi('/invite/$token')

export function Invite() {
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
      below={<ToSignIn />}
    >
      {(error) => (
        <>
          <Field label="Email" error={error?.fields['email']}>
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
