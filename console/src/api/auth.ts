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

/** Signs in with an account that exists, and joins the organization of the invitation. */
export async function signInInvited(email: string, password: string, inviteToken: string): Promise<void> {
  const login = await unwrap(client.POST('/api/v1/login', { body: { email, password, invite_token: inviteToken } }))
  startSession(login.token, login.user.email)
}

/** Joins the organization of the invitation as the user who is signed in. */
export async function acceptInvite(inviteToken: string): Promise<void> {
  const email = getSession()?.email ?? ''
  const joined = await unwrap(client.POST('/api/v1/auth/accept-invite', { body: { invite_token: inviteToken } }))
  startSession(joined.token, email)
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

/** Ends all sessions of the user, also this one. */
export async function signOutEverywhere(): Promise<void> {
  await unwrap(client.POST('/api/v1/auth/logout-all'))
  endSession()
}

/** Sets a new password with a one-time token of the operator. */
export async function resetPassword(token: string, password: string): Promise<void> {
  await unwrap(client.POST('/api/v1/auth/reset', { body: { token, new_password: password } }))
  endSession()
}
