import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { resetPassword } from '@/api/auth'
import { Field, SecretInput, toast } from '@/ui'
import { AuthForm, ToSignIn } from './AuthForm'

const route = getRouteApi('/reset/$token')

/** Sets a new password with the one-time token of a link. */
export function Reset() {
  const { token } = route.useParams()
  const navigate = useNavigate()
  return (
    <AuthForm
      title="Choose a new password"
      about="The link works once, for one hour. All your sessions end."
      action="Set password"
      onSubmit={async ({ password = '' }) => {
        await resetPassword(token, password)
        toast('Password changed')
        await navigate({ to: '/login', search: {} })
      }}
      below={<ToSignIn />}
    >
      {(error) => (
        <Field label="New password" hint="8 characters or more" error={error?.fields['new_password']}>
          <SecretInput name="password" required autoFocus minLength={8} maxLength={256} autoComplete="new-password" />
        </Field>
      )}
    </AuthForm>
  )
}
