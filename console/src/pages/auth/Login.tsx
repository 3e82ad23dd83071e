import { getRouteApi, Link, useRouter } from '@tanstack/react-router'
import { signIn } from '@/api/auth'
import { Field, Input, SecretInput } from '@/ui'
import { AuthForm } from './AuthForm'

const route = getRouteApi('/login')

export function Login() {
  const { next } = route.useSearch()
  const router = useRouter()
  return (
    <AuthForm
      title="Sign in"
      action="Sign in"
      onSubmit={async ({ email = '', password = '' }) => {
        await signIn(email, password)
        // Redirect only to console pages: the parameter is untrusted (open redirect).
        router.history.push(next?.startsWith('/') && !next.startsWith('//') ? `/console${next}` : '/console/')
      }}
      below={
        <>
          New here?{' '}
          <Link to="/signup" className="font-medium text-accent underline">
            Create an organization
          </Link>
        </>
      }
    >
      {(error) => (
        <>
          <Field label="Email" error={error?.fields['email']}>
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
