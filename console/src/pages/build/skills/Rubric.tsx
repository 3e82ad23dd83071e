import { useQueries } from '@tanstack/react-query'
import { useState } from 'react'
import { api, client, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { percent, plural } from '@/lib/format'
import { AXES, weightedScore, normalizeWeights, type Weights } from '@/lib/rubric'
import { useAction } from '@/lib/useAction'
import { Badge, Button, ErrorLine, ErrorPanel, Field, Input, Page, Section, SkeletonRows, toast, usePermissionReason } from '@/ui'
import { SkillsLayout } from './SkillsLayout'

/** Maximum number of skills in the score preview. */
const MAX_PREVIEWED_SKILLS = 20

/** Rubric editor: axis weights, threshold and allowed evaluation sources. */
export function Rubric() {
  return (
    <Page title="Rubric" about="How skills are scored, and which evaluators can approve publishing">
      <SkillsLayout current="rubric">
        <Load />
      </SkillsLayout>
    </Page>
  )
}

function Load() {
  const query = api.useQuery('get', '/api/v1/skills/rubric')
  if (query.isError) return <ErrorPanel error={query.error} what="the rubric" onRetry={() => void query.refetch()} />
  if (!query.data) return <SkeletonRows rows={6} />
  return <Form key={query.data.updated_at} rubric={query.data} />
}

function Form({ rubric }: { rubric: Schemas['RubricConfig'] }) {
  const permissionReason = usePermissionReason('member')
  const [weights, setWeights] = useState<Weights>(rubric.weights)
  const [threshold, setThreshold] = useState(rubric.pass_threshold)
  const [judge, setJudge] = useState({ provider: rubric.judge_provider, model: rubric.judge_model })
  const [sources, setSources] = useState(rubric.allowed_verdict_sources.join(', '))
  const share = normalizeWeights(weights)
  const save = useAction(async () => {
    await client.PUT('/api/v1/skills/rubric/{rubricId}', {
      params: { path: { rubricId: rubric.id } },
      body: { weights: { ...weights }, pass_threshold: threshold, judge_provider: judge.provider, judge_model: judge.model, allowed_verdict_sources: sources.split(/[\s,]+/).filter(Boolean) },
    })
    await invalidate('/api/v1/skills')
    toast('Rubric saved; it applies to new evaluations')
  })
  const isReadOnly = permissionReason !== null
  return (
    <form
      className="grid items-start gap-4 lg:grid-cols-2"
      onSubmit={(event) => {
        event.preventDefault()
        if (!isReadOnly) save.run()
      }}
    >
      <Section title="Weights">
        <div className="flex flex-col gap-3">
          {AXES.map((axis) => (
            <Slider key={axis} label={axis} value={weights[axis] ?? 0} shown={percent(share[axis] ?? 0)} disabled={isReadOnly} onChange={(value) => setWeights({ ...weights, [axis]: value })} />
          ))}
          {save.fields['weights'] && <p role="alert" className="text-xs text-err">{save.fields['weights']}</p>}
          <p className="text-xs text-muted">Only the proportions count; together they always make 100%.</p>
        </div>
      </Section>
      <div className="flex flex-col gap-4">
        <Section title="Gate">
          <div className="flex flex-col gap-3">
            <Slider label="Threshold to pass" value={threshold} shown={threshold.toFixed(2)} disabled={isReadOnly} onChange={setThreshold} />
            <Preview weights={weights} threshold={threshold} />
            <Field label="Sources that count" hint="internal is the built-in judge; others send verdicts through the API" error={save.fields['allowed_verdict_sources']}>
              <Input mono disabled={isReadOnly} value={sources} onChange={(event) => setSources(event.target.value)} />
            </Field>
          </div>
        </Section>
        <Section title="Judge">
          <div className="grid grid-cols-2 gap-3">
            <Field label="Provider" hint="builtin needs no account" error={save.fields['judge_provider']}>
              <Input mono disabled={isReadOnly} value={judge.provider} onChange={(event) => setJudge({ ...judge, provider: event.target.value })} />
            </Field>
            <Field label="Model" error={save.fields['judge_model']}>
              <Input mono disabled={isReadOnly} value={judge.model} onChange={(event) => setJudge({ ...judge, model: event.target.value })} />
            </Field>
          </div>
        </Section>
        {Object.keys(save.fields).length === 0 && <ErrorLine error={save.error} />}
        <div>
          <Button kind="primary" type="submit" needs="member" busy={save.busy}>
            Save rubric
          </Button>
          {permissionReason && <p className="mt-2 text-xs text-muted">{permissionReason}</p>}
        </div>
      </div>
    </form>
  )
}

function Slider({ label, value, shown, disabled, onChange }: { label: string; value: number; shown: string; disabled: boolean; onChange(value: number): void }) {
  return (
    <label className="grid grid-cols-[120px_minmax(0,1fr)_56px] items-center gap-3">
      <span className="truncate">{label}</span>
      <input type="range" min={0} max={1} step={0.05} value={value} disabled={disabled} className="min-h-6 accent-accent" onChange={(event) => onChange(Number(event.target.value))} />
      <output className="text-right tabular-nums">{shown}</output>
    </label>
  )
}

/** Preview: latest verdicts rescored with these weights. */
function Preview({ weights, threshold }: { weights: Weights; threshold: number }) {
  const skills = api.useQuery('get', '/api/v1/skills', { params: { query: { limit: MAX_PREVIEWED_SKILLS } } })
  const queries = useQueries({
    queries: (skills.data?.skills ?? []).map((skill) => ({ ...api.queryOptions('get', '/api/v1/skills/{skillId}/evaluations', { params: { path: { skillId: skill.id }, query: { limit: 20 } } }), staleTime: 60_000 })),
  })
  const newest = queries.flatMap((query) => query.data?.evaluations.find((one) => one.source === 'internal') ?? [])
  if (newest.length === 0) return null
  const changed = newest.filter((one) => weightedScore(weights, one.axes) >= threshold !== one.passed)
  return (
    <p role="status" className="flex items-center gap-2">
      <Badge tone={changed.length > 0 ? 'warn' : 'muted'}>
        {changed.length} of {plural(newest.length, 'skill')}
      </Badge>
      would change between passed and failed
    </p>
  )
}
