/** Actions of the audit log in words. */
const AREAS: Record<string, string> = { app: 'application', org: 'organization', auth: 'session', verdict: 'a verdict', cache: 'the cache', mcp_server: 'MCP server', mcp_connection: 'credentials for MCP server' }
const VERBS: Record<string, string> = {
  create: 'created', update: 'changed', delete: 'deleted', remove: 'removed', invite: 'invited', withdraw_invite: 'withdrew the invitation of',
  role: 'changed the role of', revoke: 'revoked', rotate: 'rotated', test: 'tested', plan: 'changed the plan of', publish: 'published',
  unpublish: 'withdrew', adopt: 'copied', purge: 'purged', run: 'started', cancel: 'cancelled', freeze: 'froze', import: 'imported into',
  add_cases: 'added cases to', update_case: 'changed a case of', remove_case: 'removed a case of', submit: 'submitted', retry: 'sent again for',
  rotate_secret: 'rotated the secret of', evaluate: 'evaluated', start: 'started', mute: 'muted', label: 'set a label on', unlabel: 'removed a label from', refresh: 'read the tools of',
  approve_tool: 'approved a tool of',
}
const WHOLE: Record<string, string> = {
  'auth.login': 'signed in', 'auth.login_failed': 'failed to sign in', 'auth.logout': 'signed out', 'auth.logout_all': 'signed out everywhere',
  'auth.end_session': 'ended a session', 'auth.switch_org': 'switched to the organization', 'auth.password': 'changed the password',
  'auth.reset': 'reset the password', 'member.add': 'joined', 'settings.update': 'changed the settings', 'org.import': 'imported from another gateway', 'access.read': 'tried to read',
  'log.read_bodies': 'read a conversation', 'audit.read': 'read the audit log', 'audit.export': 'exported the audit log',
  'audit.verify': 'verified the audit log', 'audit.suppressed': 'repeated entries were counted', 'audit.retention': 'old entries were removed',
  scope_denied: 'called outside the scopes of the key',
}

/** `key.rotate` becomes `rotated key`. */
export function actionInWords(action: string): string {
  const known = WHOLE[action]
  if (known) return known
  const [area = '', verb = ''] = action.split('.')
  return `${VERBS[verb] ?? verb.replaceAll('_', ' ')} ${AREAS[area] ?? area.replaceAll('_', ' ')}`
}
