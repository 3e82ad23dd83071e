import { Section } from '@/ui'
import { ROLES } from './roles'

/** Description of the roles. */
export function RoleGuide() {
  return (
    <Section title="What roles may do">
      <dl className="grid gap-x-4 gap-y-1.5 sm:grid-cols-[5rem_1fr]">
        {ROLES.map(({ role, may }) => (
          <div key={role} className="contents">
            <dt className="font-medium">{role}</dt>
            <dd className="text-muted max-sm:mb-1.5">{may}</dd>
          </div>
        ))}
      </dl>
    </Section>
  )
}
