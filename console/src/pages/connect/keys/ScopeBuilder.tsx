/** Editor of key scopes, with a preview of the callable models. */
import { useId } from 'react'
import { api } from '@/api/client'
import { plural } from '@/lib/format'
import { callableModels, type ScopeSelection } from '@/lib/scope'
import { Radio } from '@/ui'
import { NameList } from './NameList'

interface Props {
  limited: boolean
  onLimited: (limited: boolean) => void
  choice: ScopeSelection
  onChoice: (choice: ScopeSelection) => void
  scopes: string[]
  problem: string | null
}

export function ScopeBuilder({ limited, onLimited, choice, onChoice, scopes, problem }: Props) {
  const group = useId()
  const offers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const providers = offers.data?.providers ?? []
  const models = [...new Set(providers.flatMap((provider) => provider.models.map((model) => model.id)))].sort()
  return (
    <fieldset className="flex flex-col gap-3">
      <legend className="mb-1 text-sm font-medium">May call</legend>
      <Radio name={group} checked={!limited} onChange={() => onLimited(false)} label="Everything" hint="All providers and models. Such a key can also manage the organization as an admin would." />
      <Radio name={group} checked={limited} onChange={() => onLimited(true)} label="Only some providers or models" hint="It cannot manage anything. A call must match one of the providers and one of the models; a list left empty allows all." />
      {limited && (
        <div className="ml-6 grid gap-3 sm:grid-cols-2">
          <NameList label="Providers" names={choice.providers} suggestions={providers.map((provider) => provider.name)} placeholder="openai" onChange={(names) => onChoice({ ...choice, providers: names })} />
          <NameList label="Models" names={choice.models} suggestions={models} placeholder="gpt-4o*" onChange={(names) => onChoice({ ...choice, models: names })} />
          <Preview scopes={scopes} problem={problem} offers={providers} />
        </div>
      )}
    </fieldset>
  )
}

function Preview({ scopes, problem, offers }: { scopes: string[]; problem: string | null; offers: Parameters<typeof callableModels>[1] }) {
  const found = problem === null ? callableModels(scopes, offers) : []
  return (
    <div className="rounded-sm bg-sunken p-2 text-xs sm:col-span-2" role="status">
      {problem ?? (
        <>
          This key can call <b>{plural(found.length, 'known model')}</b>
          {found.length === 0 && '. Models that the gateway has no list of may still match.'}
          {found.length > 0 && (
            <ul className="mt-1 max-h-24 overflow-y-auto font-mono text-muted">
              {found.slice(0, 200).map(({ provider, model }) => (
                <li key={`${provider}/${model}`}>
                  {provider}/{model}
                </li>
              ))}
            </ul>
          )}
        </>
      )}
    </div>
  )
}
