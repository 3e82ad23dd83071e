/** Editor of key scopes, with a preview of the callable models. */
import { useId } from 'react'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { plural } from '@/lib/format'
import { callableModels, type KeyUse, type ScopeSelection } from '@/lib/scope'
import { Checkbox, Radio } from '@/ui'
import { NameList } from './NameList'

interface Props {
  choice: ScopeSelection
  onChoice: (choice: ScopeSelection) => void
  scopes: string[]
  problem: string | null
}

export function ScopeBuilder({ choice, onChoice, scopes, problem }: Props) {
  const group = useId()
  const offers = api.useQuery('get', '/api/v1/playground/providers', {}, { staleTime: 60_000 })
  const providers = offers.data?.providers ?? []
  const { orgId } = useMe()
  const servers = api.useQuery('get', '/api/v1/orgs/{orgId}/mcp-servers', { params: { path: { orgId }, query: { limit: 200 } } }, { staleTime: 60_000 })
  const models = [...new Set(providers.flatMap((provider) => provider.models.map((model) => model.id)))].sort()
  const use = (value: KeyUse) => ({ name: group, checked: choice.use === value, onChange: () => onChoice({ ...choice, use: value, mcp: value === 'mcp' && choice.mcp.length === 0 ? ['*'] : choice.mcp }) })
  const mcp = <NameList label="MCP servers" names={choice.mcp} suggestions={['*', ...(servers.data?.servers.map((server) => server.name) ?? [])]} placeholder="github/get_*" onChange={(names) => onChoice({ ...choice, mcp: names })} />
  return (
    <fieldset className="flex flex-col gap-3">
      <legend className="mb-1 text-sm font-medium">Permissions</legend>
      <Radio {...use('proxy')} label="Calling models" hint="All providers and models. In the management API it sees only its own log rows and usage. Use it for applications." />
      <Radio {...use('some')} label="Calling some providers or models" hint="A call must match one of the providers and one of the models; a list left empty allows all. It acts as a member, and sees only its own log rows and usage." />
      {choice.use === 'some' && (
        <div className="ml-6 grid gap-3 sm:grid-cols-2">
          <NameList label="Providers" names={choice.providers} suggestions={providers.map((provider) => provider.name)} placeholder="openai" onChange={(names) => onChoice({ ...choice, providers: names })} />
          <NameList label="Models" names={choice.models} suggestions={models} placeholder="gpt-4o*" onChange={(names) => onChoice({ ...choice, models: names })} />
          <Preview scopes={scopes} problem={problem} offers={providers} />
        </div>
      )}
      <Radio {...use('mcp')} label="Using MCP servers" hint="Servers or tools of them: * for all, github, github/get_*. It calls no model. Use it for agents with their own model." />
      {choice.use === 'mcp' && <div className="ml-6">{mcp}</div>}
      <Radio {...use('read')} label="Reading" hint="What a viewer may read: logs, usage and settings of the whole organization. It calls no model." />
      <Radio {...use('everything')} label="Everything" hint="Also manages the organization as an admin would: members, keys, providers, budgets, webhooks, and every log row with its texts. Every holder of the key has all of that; do not put it into an application." />
      {(choice.use === 'proxy' || choice.use === 'some') && (
        <Checkbox label="May also use MCP servers" checked={choice.mcp.length > 0} onChange={(event) => onChoice({ ...choice, mcp: event.target.checked ? ['*'] : [] })} />
      )}
      {(choice.use === 'proxy' || choice.use === 'some') && choice.mcp.length > 0 && <div className="ml-6">{mcp}</div>}
      {(choice.use === 'proxy' || choice.use === 'some' || choice.use === 'mcp') && (
        <Checkbox label="May also read logs and usage of the whole organization" checked={choice.reads} onChange={(event) => onChoice({ ...choice, reads: event.target.checked })} />
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
