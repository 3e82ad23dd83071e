import { signOut } from '@/api/auth'
import { useMe } from '@/api/me'
import { zoneName } from '@/lib/format'
import { setPrefs, usePrefs, type Density, type Prefs } from '@/lib/prefs'
import { useSwitchOrg } from '@/shell/useSwitchOrg'
import { Badge, Button, Field, Page, Section, Select } from '@/ui'
import { Password } from './Password'
import { Sessions } from './Sessions'

/** Account settings of the user. Preferences are stored in this browser only. */
export function Account() {
  const me = useMe()
  const prefs = usePrefs()
  const change = useSwitchOrg()
  return (
    <Page title="Account" about={me.email} actions={<Button onClick={() => void signOut()}>Sign out</Button>}>
      <div className="grid items-start gap-4 lg:grid-cols-2">
        <Section title="Preferences">
          <div className="grid gap-3 sm:grid-cols-3">
            <Field label="Theme">
              <Select value={prefs.theme} onChange={(event) => setPrefs({ theme: event.target.value as Prefs['theme'] })} options={[{ value: 'system', label: 'System' }, { value: 'light', label: 'Light' }, { value: 'dark', label: 'Dark' }]} />
            </Field>
            <Field label="Times">
              <Select value={prefs.zone} onChange={(event) => setPrefs({ zone: event.target.value as Prefs['zone'] })} options={[{ value: 'local', label: zoneName('local') }, { value: 'utc', label: 'UTC' }]} />
            </Field>
            <Field label="Rows">
              <Select value={prefs.density} onChange={(event) => setPrefs({ density: event.target.value as Density })} options={[{ value: 'comfortable', label: 'Comfortable' }, { value: 'compact', label: 'Compact' }, { value: 'dense', label: 'Dense' }]} />
            </Field>
          </div>
          <p className="mt-3 text-xs text-muted">Kept in this browser.</p>
        </Section>
        <Section title="Organizations" flush>
          <ul className="pb-1">
            {me.orgs.map((org) => (
              <li key={org.id} className="flex min-h-10 items-center gap-2 border-t border-line px-3 first:border-t-0">
                <span className="name min-w-0 flex-1 truncate">
                  {org.name} <span className="font-mono text-xs text-muted">{org.slug}</span>
                </span>
                <Badge>{org.role}</Badge>
                <Badge>{org.plan}</Badge>
                {org.id === me.orgId ? (
                  <Badge tone="accent">current</Badge>
                ) : (
                  <Button size="sm" onClick={() => void change(org.id)}>
                    Switch
                  </Button>
                )}
              </li>
            ))}
          </ul>
        </Section>
        <Password />
        <Sessions />
      </div>
    </Page>
  )
}
