import type { OwnCalls } from '@/lib/query'
import { Switch } from '@/ui'

interface OwnSwitchProps {
  own: OwnCalls
  /** The query names the source itself. */
  blocked?: boolean
  onChange(own: OwnCalls): void
}

/** Whether the gateway's own calls count too. */
export function OwnSwitch({ own, blocked = false, onChange }: OwnSwitchProps) {
  return (
    <Switch
      className="text-muted"
      label="Playground and evals"
      title={blocked ? 'The query names the source itself' : 'Include requests of the playground, of evals and of replays'}
      checked={own === 'show'}
      disabled={blocked}
      onChange={() => onChange(own === 'show' ? undefined : 'show')}
    />
  )
}
