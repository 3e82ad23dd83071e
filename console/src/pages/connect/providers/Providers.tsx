/** Providers, their models and their credentials. */
import { Plus } from 'lucide-react'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { api, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { Button, ErrorPanel, Field, Input, NoMatch, Page, SkeletonCards } from '@/ui'
import { ProviderCard, type Offer } from './ProviderCard'
import { ProviderForm } from './ProviderForm'
import { RemoveProvider } from './RemoveProvider'
import { useProviderHealth } from './useProviderHealth'

type Open = { kind: 'custom' } | { kind: 'edit' | 'remove'; offer: Offer }

export function Providers() {
  const { q } = useSearch({ from: '/shell/providers' })
  const navigate = useNavigate({ from: '/providers' })
  const { orgId } = useMe()
  const [open, setOpen] = useState<Open | null>(null)
  const [tested, setTested] = useState<string | null>(null)
  const [showAll, setShowAll] = useState(false)
  const openForm = (next: Open) => {
    setTested(null)
    setOpen(next)
  }
  const saved = (name: string, test: boolean) => setTested(test ? name : null)
  const known = api.useQuery('get', '/api/v1/playground/providers', {}, { refetchInterval: 60_000 })
  const own = api.useQuery('get', '/api/v1/orgs/{orgId}/providers', { params: { path: { orgId }, query: { limit: 200 } } })
  const offers = merge(known.data?.providers ?? [], own.data?.providers ?? [])
  const term = (q ?? '').toLowerCase()
  const shown = offers.filter((offer) => `${offer.name} ${offer.kind} ${offer.models.join(' ')}`.toLowerCase().includes(term))
  const unready = shown.filter((offer) => !offer.configured)
  const failed = known.error ?? own.error
  return (
    <Page
      title="Providers"
      about="Store a credential once, and every key of the organization can use it. It is encrypted and never shown again."
      actions={
        <Button kind="primary" needs="admin" icon={<Plus size={14} aria-hidden />} onClick={() => openForm({ kind: 'custom' })}>
          Add custom provider
        </Button>
      }
    >
      {failed ? (
        <ErrorPanel error={failed} what="the providers" onRetry={() => void Promise.all([known.refetch(), own.refetch()])} />
      ) : known.isPending || own.isPending ? (
        <SkeletonCards cards={9} className="h-32" />
      ) : (
        <>
          <div className="relative w-full sm:w-72">
            <Field label="Search providers" quiet>
              <Input type="search" placeholder="Name or model" value={q ?? ''} onChange={(event) => void navigate({ search: (old) => ({ ...old, q: event.target.value || undefined }), replace: true })} />
            </Field>
          </div>
          {shown.length === 0 && <NoMatch what="providers" onClear={() => void navigate({ search: {} })} />}
          <Group title="Ready" offers={shown.filter((offer) => offer.configured)} tested={tested} onOpen={openForm} />
          {showAll || term !== '' ? (
            <Group title="Without a credential" note="Callers can still bring their own with each request." offers={unready} tested={tested} onOpen={openForm} />
          ) : (
            unready.length > 0 && (
              <div>
                <Button onClick={() => setShowAll(true)}>Show all providers ({unready.length} more)</Button>
              </div>
            )
          )}
        </>
      )}
      {open?.kind === 'custom' && <ProviderForm offer={null} kinds={offers.filter((offer) => offer.builtIn).map((offer) => offer.name)} onClose={() => setOpen(null)} onSaved={saved} />}
      {open?.kind === 'edit' && <ProviderForm offer={open.offer} kinds={[]} onClose={() => setOpen(null)} onSaved={saved} />}
      {open?.kind === 'remove' && <RemoveProvider offer={open.offer} onClose={() => setOpen(null)} />}
    </Page>
  )
}

function Group({ title, note, offers, tested, onOpen }: { title: string; note?: string; offers: Offer[]; tested: string | null; onOpen: (open: Open) => void }) {
  const health = useProviderHealth()
  if (offers.length === 0) return null
  return (
    <section aria-label={title}>
      <h2 className="mb-2 text-sm">
        {title} <span className="font-normal text-muted">{offers.length}</span>
        {note && <span className="ml-2 text-xs font-normal text-muted">{note}</span>}
      </h2>
      <ul className="grid grid-cols-[repeat(auto-fill,minmax(min(100%,300px),1fr))] gap-3">
        {offers.map((offer) => (
          <ProviderCard key={offer.name} offer={offer} health={health(offer.name)} testNow={tested === offer.name} onEdit={() => onOpen({ kind: 'edit', offer })} onRemove={() => onOpen({ kind: 'remove', offer })} />
        ))}
      </ul>
    </section>
  )
}

/** Merges built-in providers and the configuration of the organization by name. */
function merge(known: Schemas['PlaygroundProvider'][], own: Schemas['Provider'][]): Offer[] {
  return known
    .map((provider) => ({
      name: provider.name,
      kind: provider.kind,
      configured: provider.configured,
      builtIn: provider.name === provider.kind,
      models: provider.models.map((model) => model.id),
      // An older node of a cluster that is being upgraded does not send them.
      openBreakers: provider.open_breakers ?? [],
      stored: own.find((mine) => mine.name === provider.name) ?? null,
    }))
    .sort((a, b) => Number(b.stored !== null) - Number(a.stored !== null) || a.name.localeCompare(b.name))
}
