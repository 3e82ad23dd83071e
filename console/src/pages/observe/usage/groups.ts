/** What usage is grouped by, in words. */
import type { Group } from './search'

export const GROUP_NAMES: Record<Group, string> = { model: 'Model', provider: 'Provider', key: 'Key', team: 'Team', app: 'Application', user: 'User', prompt: 'Prompt', error: 'Error', tool: 'Tool' }
