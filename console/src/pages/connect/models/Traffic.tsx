import { Link } from '@tanstack/react-router'
import { Meter } from '@/charts/Bars'
import { colorsOf } from '@/charts/colors'
import { moneyColumn, percent, plural } from '@/lib/format'
import { joinTerms, term } from '@/lib/query'
import { Section, Skeleton } from '@/ui'
import type { Model } from './draft'
import { useTargetUsage } from './usage'

/** Requests, errors and cost of the targets of a model. */
export function Traffic({ model }: { model: Model }) {
  const usage = useTargetUsage([model])(model.targets)
  const total = usage?.reduce((sum, target) => sum + target.requests, 0) ?? 0
  const cost = moneyColumn(usage?.map((target) => target.cost_usd) ?? [])
  const colors = colorsOf(usage?.map((target) => target.name) ?? [])
  return (
    <Section title="Targets in this time range">
      {!usage ? (
        <Skeleton className="h-16 w-full" />
      ) : (
        <ul className="flex flex-col gap-3" aria-label="Usage of the targets">
          {usage.map((target, index) => (
            <li key={target.name}>
              <div className="flex items-baseline gap-2">
                <TargetLink name={target.name} />
                <span className="text-xs tabular-nums">{total > 0 ? percent(target.requests / total) : '–'}</span>
              </div>
              <Meter share={total > 0 ? target.requests / total : 0} color={colors[index]} />
              <p className="mt-1 flex flex-wrap gap-x-3 text-xs text-muted tabular-nums">
                <span>{plural(target.requests, 'request')}</span>
                <span className={target.errors > 0 ? 'text-err' : undefined}>{plural(target.errors, 'error')}</span>
                <span>{target.requests > 0 && target.cost_usd === null ? 'no price' : cost(target.cost_usd)}</span>
              </p>
            </li>
          ))}
        </ul>
      )}
      <p className="mt-2 text-xs text-muted">Includes calls that named the target directly.</p>
    </Section>
  )
}

function TargetLink({ name }: { name: string }) {
  const slash = name.indexOf('/')
  const [provider, model] = [name.slice(0, slash), name.slice(slash + 1)]
  return (
    <Link to="/logs" search={{ query: joinTerms(term('provider', provider), !model.endsWith('*') && term('model', model)) }} className="name min-w-0 flex-1 truncate font-mono text-xs hover:underline" title={name}>
      {name}
    </Link>
  )
}
