/** Signing in and out, and moving between organizations. */
import { client, take, type Schemas } from './client'
import { keepFirstKey } from './firstKey'
import { endSession, getSession, startSession } from './session'

/** Signs in; when `orgId` is given and the person still belongs to it, into that organization. */
export async function signIn(email: string, password: string, orgId?: string): Promise<void> {
  const login = await take(client.POST('/api/v1/login', { body: { email, password } }))
  startSession(login.token, login.user.email)
  if (orgId && orgId !== login.org.id && login.orgs.some((org) => org.id === orgId)) await switchOrg(orgId)
}

export async function signUp(body: Schemas['SignupRequest']): Promise<void> {
  const made = await take(client.POST('/api/v1/signup', { body }))
  startSession(made.token, made.user.email)
  if (made.api_key) keepFirstKey(made.api_key)
}

export async function switchOrg(orgId: string): Promise<void> {
  const email = getSession()?.email ?? ''
  const switched = await take(client.POST('/api/v1/auth/switch-org', { body: { org_id: orgId } }))
  startSession(switched.token, email)
}

export async function createOrg(name: string): Promise<void> {
  const org = await take(client.POST('/api/v1/orgs', { body: { name } }))
  await switchOrg(org.id)
}

/** The token is revoked on the server too; when that cannot be reached it is at least forgotten here. */
export async function signOut(): Promise<void> {
  await client.POST('/api/v1/auth/logout').catch(() => undefined)
  endSession()
}
