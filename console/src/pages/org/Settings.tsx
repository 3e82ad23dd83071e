/** Organization settings: name, log retention, default provider, plan and deletion. */
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { CopyButton, ErrorPanel, Page, Section, SkeletonCards } from '@/ui'
import { CacheSettings } from './settings/CacheSettings'
import { DefaultProvider } from './settings/DefaultProvider'
import { DeleteOrg } from './settings/DeleteOrg'
import { LogSettings } from './settings/LogSettings'
import { MemberKeys } from './settings/MemberKeys'
import { NameForm } from './settings/NameForm'
import { PlanChoice } from './settings/PlanChoice'
import { Quotas } from './settings/Quotas'

export function Settings() {
  const { orgId } = useMe()
  const { zone } = usePrefs()
  const query = api.useQuery('get', '/api/v1/orgs/{orgId}', { params: { path: { orgId } } })
  const org = query.data
  return (
    <Page title="Settings" about="Organization settings. Personal settings are under Account.">
      {query.isError ? (
        <ErrorPanel error={query.error} what="the settings" onRetry={() => void query.refetch()} />
      ) : !org ? (
        <SkeletonCards cards={3} className="h-40" />
      ) : (
        <div className="grid items-start gap-4 lg:grid-cols-2">
          <div className="flex min-w-0 flex-col gap-4">
            <Section title="Organization">
              <NameForm key={org.name} org={org} />
              <dl className="mt-4 grid grid-cols-[auto_1fr] items-center gap-x-4 gap-y-1 text-muted">
                <dt>Short name</dt>
                <dd className="font-mono text-xs text-fg">{org.slug}</dd>
                <dt>Id</dt>
                <dd className="flex min-w-0 items-center gap-1 font-mono text-xs text-fg">
                  <span className="name truncate">{org.id}</span>
                  <CopyButton value={org.id} label="Copy the organization’s id" />
                </dd>
                <dt>Created</dt>
                <dd className="text-fg">{time(org.created_at, zone)}</dd>
              </dl>
            </Section>
            <Section title="Plan">
              <PlanChoice key={org.plan} org={org} />
            </Section>
            <Section title="Quotas">
              <Quotas />
            </Section>
            <Section title="Keys of members">
              <MemberKeys key={JSON.stringify(org.settings.self_service_keys)} org={org} />
            </Section>
          </div>
          <div className="flex min-w-0 flex-col gap-4">
            <Section title="Logs">
              <LogSettings key={JSON.stringify(org.settings)} org={org} />
            </Section>
            <Section title="Requests without a provider">
              <DefaultProvider key={org.settings.default_provider} org={org} />
            </Section>
            <Section title="Prompt caching">
              <CacheSettings key={JSON.stringify(org.settings)} org={org} />
            </Section>
            <Section title="Delete the organization" className="border-err/40">
              <DeleteOrg org={org} />
            </Section>
          </div>
        </div>
      )}
    </Page>
  )
}
