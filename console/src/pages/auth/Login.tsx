import { getRouteApi, Link, useRouter } from '@tanstack/react-router'
import { signIn } from '@/api/auth'
import { Field, Input, SecretInput } from '@/ui'
import { Frame } from './Frame'

const route = getRouteApi('/login')

export function Login() {
  const { next } = route.useSearch()
  const router = useRouter()
  return (
    <Frame
      title="Sign in"
      action="Sign in"
      onSubmit={async ({ email = '', password = '' }) => {
        await signIn(email, password)
        // Only ever to a page of ours: what stands in the address bar may have been put there by somebody else.
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
    </Frame>
  )
}
