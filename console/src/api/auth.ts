/** Sign-in, sign-up, sign-out and switching of organizations. */
import { client, unwrap, type Schemas } from './client'
import { setFirstKey } from './firstKey'
import { endSession, getSession, startSession } from './session'

/** Signs in, and switches to `orgId` if given and the user is still a member. */
export async function signIn(email: string, password: string, orgId?: string): Promise<void> {
  const login = await unwrap(client.POST('/api/v1/login', { body: { email, password } }))
  startSession(login.token, login.user.email)
  if (orgId && orgId !== login.org.id && login.orgs.some((org) => org.id === orgId)) await switchOrg(orgId)
}

export async function signUp(body: Schemas['SignupRequest']): Promise<void> {
  const created = await unwrap(client.POST('/api/v1/signup', { body }))
  startSession(created.token, created.user.email)
  if (created.api_key) setFirstKey(created.api_key)
}

export async function switchOrg(orgId: string): Promise<void> {
  const email = getSession()?.email ?? ''
  const switched = await unwrap(client.POST('/api/v1/auth/switch-org', { body: { org_id: orgId } }))
  startSession(switched.token, email)
}

export async function createOrg(name: string): Promise<void> {
  const org = await unwrap(client.POST('/api/v1/orgs', { body: { name } }))
  await switchOrg(org.id)
}

/** Revokes the token on the server. If the server is unreachable, the local session is removed anyway. */
export async function signOut(): Promise<void> {
  await client.POST('/api/v1/auth/logout').catch(() => undefined)
  endSession()
}
