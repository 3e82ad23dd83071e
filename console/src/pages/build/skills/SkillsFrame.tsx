import type { ReactNode } from 'react'
import { PlanGate } from '@/ui'
import { ViewLinks } from '../shared/ViewLinks'

/** What all pages of skills share: the plan that they need, and the way from one to the other. */
export function SkillsFrame({ current, children }: { current: 'mine' | 'shelf' | 'rubric'; children: ReactNode }) {
  return (
    <PlanGate needs="skill_marketplace" name="Skills" about="Instructions for agents, written here, judged before they are published, and shared on a shelf that all organizations of this installation see.">
      <ViewLinks
        label="Parts of skills"
        links={[
          { name: 'Yours', to: '/skills', current: current === 'mine' },
          { name: 'Shelf', to: '/shelf', current: current === 'shelf' },
          { name: 'Rubric', to: '/skills/rubric', current: current === 'rubric' },
        ]}
      />
      {children}
    </PlanGate>
  )
}
