import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { signUp } from '@/api/auth'
import type { ApiError } from '@/api/error'
import { Field, Input, SecretInput } from '@/ui'
import { AuthForm, ToSignIn } from './AuthForm'

export function Signup() {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [slug, setSlug] = useState<string | null>(null)
  return (
    <AuthForm
      title="Create an organization"
      about="Keys, logs and budgets belong to an organization. You become its owner."
      action="Create organization"
      onSubmit={async ({ email = '', password = '', org_name = '', org_slug = '' }) => {
        await signUp({ email, password, org_slug, org_name })
        await navigate({ to: '/start' })
      }}
      shownInField={isTaken}
      below={<ToSignIn />}
    >
      {(error) => (
        <>
          <Field label="Organization" error={error?.fields['org_name']}>
            <Input name="org_name" required autoFocus maxLength={100} autoComplete="organization" value={name} onChange={(event) => setName(event.target.value)} />
          </Field>
          <Field label="Short name" hint="Lowercase letters, digits and hyphens; used in ids and by the operator" error={error?.fields['org_slug'] ?? (isTaken(error) ? 'This short name is taken. Choose another one.' : null)}>
            <Input name="org_slug" mono required pattern="[a-z0-9](?:[a-z0-9\-]{0,46}[a-z0-9])?" value={slug ?? slugOf(name)} onChange={(event) => setSlug(event.target.value)} />
          </Field>
          <Field label="Email" error={error?.fields['email']}>
            <Input name="email" type="email" required autoComplete="username" />
          </Field>
          <Field label="Password" hint="8 characters or more" error={error?.fields['password']}>
            <SecretInput name="password" required minLength={8} maxLength={256} autoComplete="new-password" />
          </Field>
        </>
      )}
    </AuthForm>
  )
}

/** The API answers a short name that is in use with a conflict instead of a field. */
function isTaken(error: ApiError | null): boolean {
  return error?.status === 409 && error.message.includes('org_slug')
}

function slugOf(name: string): string {
  return name
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .slice(0, 48)
    .replace(/^-|-$/g, '')
}
