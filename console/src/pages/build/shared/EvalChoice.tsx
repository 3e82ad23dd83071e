import { Link } from '@tanstack/react-router'
import { api } from '@/api/client'
import { Checkbox, ErrorPanel, SkeletonRows } from '@/ui'

interface EvalChoiceProps {
  chosen: readonly number[]
  onChange(chosen: number[]): void
  max: number
  /** Shown if there is no eval. */
  none: string
  about?: string
}

/** Checkboxes of the evals of the organization. */
export function EvalChoice({ chosen, onChange, max, none, about }: EvalChoiceProps) {
  const evals = api.useQuery('get', '/api/v1/evals', { params: { query: { limit: 200 } } })
  if (evals.isError) return <ErrorPanel error={evals.error} what="the evals" onRetry={() => void evals.refetch()} />
  if (!evals.data) return <SkeletonRows rows={2} />
  if (evals.data.evals.length === 0) {
    return (
      <p className="text-muted">
        {none}{' '}
        <Link to="/evals" className="text-accent underline">
          Define an eval
        </Link>
      </p>
    )
  }
  const full = chosen.length >= max
  return (
    <fieldset>
      <legend className="mb-2 text-xs text-muted">
        {about} {max > 1 && `At most ${max}.`}
      </legend>
      <div className="grid max-h-56 gap-x-4 gap-y-2 overflow-y-auto sm:grid-cols-2" tabIndex={0} role="group" aria-label="Evals">
        {evals.data.evals.map((one) => (
          <Checkbox
            key={one.id}
            label={<span className="break-words">{one.name}</span>}
            hint={one.type === 'llm' ? 'asks a model for each answer' : one.evaluator}
            checked={chosen.includes(one.id)}
            disabled={full && !chosen.includes(one.id)}
            onChange={(event) => onChange(event.target.checked ? [...chosen, one.id] : chosen.filter((id) => id !== one.id))}
          />
        ))}
      </div>
    </fieldset>
  )
}
