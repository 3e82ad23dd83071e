import { getRouteApi, useNavigate } from '@tanstack/react-router'
import { EllipsisVertical, Pencil, Play, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { api, client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { percent } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ConfirmDialog, ErrorPanel, Field, FormDialog, Input, Menu, MenuItem, Page, Section, SkeletonRows, Switch, toast, toastError, usePermissionReason } from '@/ui'
import { Json } from '@/ui/Json'
import { EvalForm } from './EvalForm'
import { PassRateChart } from './PassRateChart'
import { RunList } from './RunList'
import { RunOnDataset } from './RunOnDataset'

const route = getRouteApi('/shell/evals/$evalId')

/** One eval definition and its runs. */
export function EvalPage() {
  const evalId = Number(route.useParams().evalId)
  const query = api.useQuery('get', '/api/v1/evals/{evalId}', { params: { path: { evalId } } })
  if (query.isError) {
    return (
      <Page title="Eval">
        <ErrorPanel error={query.error} what="this eval" onRetry={() => void query.refetch()} />
      </Page>
    )
  }
  if (!query.data) {
    return (
      <Page title="Eval">
        <SkeletonRows rows={6} />
      </Page>
    )
  }
  return <Loaded value={query.data} />
}

function Loaded({ value }: { value: Schemas['Eval'] }) {
  const navigate = useNavigate()
  const [open, setOpen] = useState<'edit' | 'judge' | 'delete' | 'dataset' | 'logs' | null>(null)
  const close = () => setOpen(null)
  const permissionReason = usePermissionReason('member')
  const path = { evalId: value.id }
  const isSampling = value.enabled && value.sample_rate > 0
  const toggle = async (enabled: boolean) => {
    try {
      await client.PUT('/api/v1/evals/{evalId}', { params: { path }, body: { enabled } })
    } catch (error) {
      toastError(error)
    }
    await invalidate('/api/v1/evals')
  }
  const remove = async () => {
    await client.DELETE('/api/v1/evals/{evalId}', { params: { path } })
    await navigate({ to: '/evals' })
    await invalidate('/api/v1/evals')
  }
  return (
    <Page
      title={value.name}
      beside={<Badge>{value.type}</Badge>}
      about={<code>{value.evaluator}</code>}
      actions={
        <>
          <Button needs="member" icon={<Play size={14} aria-hidden />} onClick={() => setOpen('logs')}>
            Run on requests
          </Button>
          <Button kind="primary" needs="member" icon={<Play size={14} aria-hidden />} onClick={() => setOpen('dataset')}>
            Run on a dataset
          </Button>
          <Menu trigger={<Button square aria-label="More" icon={<EllipsisVertical size={14} aria-hidden />} />}>
            <MenuItem needs="member" icon={<Pencil size={14} aria-hidden />} onSelect={() => setOpen('edit')}>
              Change
            </MenuItem>
            <MenuItem danger needs="member" icon={<Trash2 size={14} aria-hidden />} onSelect={() => setOpen('delete')}>
              Delete eval
            </MenuItem>
          </Menu>
        </>
      }
    >
      <div className="grid items-start gap-4 lg:grid-cols-[minmax(0,1fr)_minmax(260px,340px)]">
        <div className="flex min-w-0 flex-col gap-4">
          <PassRateChart evalId={value.id} />
          <RunList evalId={value.id} />
        </div>
        <Section title="Definition">
          <div className="flex flex-col gap-3">
            <Switch label="Judge new requests" hint={permissionReason ?? (value.sample_rate === 0 ? 'Off: the eval runs only when you start it. Turn it on to choose a share of requests.' : `${percent(value.sample_rate)} of requests, as they arrive`)} checked={isSampling} disabled={permissionReason !== null} onChange={(event) => (value.sample_rate === 0 ? setOpen('judge') : void toggle(event.target.checked))} />
            <Json value={value.config} label="Config" />
          </div>
        </Section>
      </div>
      {(open === 'edit' || open === 'judge') && <EvalForm value={value} judging={open === 'judge'} onClose={close} onSaved={() => toast('Saved')} />}
      {open === 'dataset' && <RunOnDataset evalId={value.id} onClose={close} />}
      {open === 'logs' && <RunOnLogs evalId={value.id} onClose={close} />}
      <ConfirmDialog open={open === 'delete'} onClose={close} title={`Delete eval ${value.name}?`} action="Delete eval" typeToConfirm={value.name} onConfirm={remove}>
        Its runs and all verdicts are deleted with it.
      </ConfirmDialog>
    </Page>
  )
}

/** Starts a run over recent requests, optionally of one provider or model. */
function RunOnLogs({ evalId, onClose }: { evalId: number; onClose(): void }) {
  const navigate = useNavigate()
  const [limit, setLimit] = useState('100')
  const [provider, setProvider] = useState('')
  const [model, setModel] = useState('')
  const run = useAction(async () => {
    const created = await unwrap(client.POST('/api/v1/evals/{evalId}/run', { params: { path: { evalId } }, body: { limit: Number(limit), provider: provider || null, model: model || null } }))
    await invalidate('/api/v1/evals/runs')
    await navigate({ to: '/evals/runs/$runId', params: { runId: String(created.id) } })
  })
  return (
    <FormDialog
      size="sm"
      onClose={onClose}
      title="Run on logged requests"
      description="Evaluates the stored answers; no model is called unless the eval itself uses one."
      action={run}
      submit="Start run"
      fields={['limit', 'provider', 'model']}
    >
      <Field label="Latest requests" error={run.fields['limit']}>
        <Input type="number" required min={1} max={1000} autoFocus value={limit} onChange={(event) => setLimit(event.target.value)} />
      </Field>
      <Field label="Provider" hint="Leave empty for all" error={run.fields['provider']}>
        <Input mono value={provider} onChange={(event) => setProvider(event.target.value)} />
      </Field>
      <Field label="Model" hint="Leave empty for all" error={run.fields['model']}>
        <Input mono value={model} onChange={(event) => setModel(event.target.value)} />
      </Field>
    </FormDialog>
  )
}
