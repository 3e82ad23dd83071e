import type { Schemas } from '@/api/client'

export const WEBHOOK_FORMATS: { value: Schemas['WebhookFormat']; label: string }[] = [
  { value: 'standard', label: 'JSON event (Standard Webhooks)' },
  { value: 'slack', label: 'Chat message (Slack, Mattermost, Google Chat)' },
]

/** Webhook event types, grouped by resource. */
export const EVENT_GROUPS: { name: string; events: { type: string; about: string }[] }[] = [
  {
    name: 'Keys',
    events: [
      { type: 'key.create', about: 'a key was created' },
      { type: 'key.rotate', about: 'a key was rotated' },
      { type: 'key.revoke', about: 'a key was revoked' },
    ],
  },
  {
    name: 'People',
    events: [
      { type: 'user.invite', about: 'a member was invited' },
      { type: 'user.role_change', about: 'a role changed' },
      { type: 'user.remove', about: 'a member was removed' },
    ],
  },
  {
    name: 'Budgets',
    events: [
      { type: 'budget.warning', about: 'a soft limit was reached' },
      { type: 'budget.exceeded', about: 'a hard limit was reached' },
    ],
  },
  {
    name: 'Applications',
    events: [
      { type: 'app.create', about: 'an application was created' },
      { type: 'app.delete', about: 'an application was deleted' },
    ],
  },
  {
    name: 'Alerts and limits',
    events: [
      { type: 'alert.fired', about: 'an alert fired' },
      { type: 'alert.resolved', about: 'an alert was resolved' },
      { type: 'limit.reached', about: 'a limit refused requests' },
    ],
  },
  {
    name: 'Audit',
    events: [{ type: 'audit.checkpoint', about: 'the audit log was signed' }],
  },
]

export const EVENT_TYPES = EVENT_GROUPS.flatMap((group) => group.events.map((event) => event.type))
