import type { ReactNode } from 'react'
import { PlanGate } from '@/ui'
import { ViewLinks } from '../shared/ViewLinks'

/** Layout of the skill pages: plan gate and navigation. */
export function SkillsLayout({ current, children }: { current: 'mine' | 'shelf' | 'rubric' | 'install'; children: ReactNode }) {
  return (
    <PlanGate needs="skill_marketplace" name="Skills" about="Instructions for agents, evaluated before they are published, and shared with all organizations on this server.">
      <ViewLinks
        label="Parts of skills"
        links={[
          { name: 'Yours', to: '/skills', current: current === 'mine' },
          { name: 'Shelf', to: '/shelf', current: current === 'shelf' },
          { name: 'Install', to: '/skills/install', current: current === 'install' },
          { name: 'Rubric', to: '/skills/rubric', current: current === 'rubric' },
        ]}
      />
      {children}
    </PlanGate>
  )
}
