import { lazy, Suspense, useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { invalidate } from '@/api/query'
import { licenceText, NO_LICENCE } from '@/lib/frontmatter'
import { parseFindings } from '@/lib/safetyFindings'
import { useAction } from '@/lib/useAction'
import { Button, ConfirmDialog, ErrorLine, Section, Skeleton, Status, toast } from '@/ui'

const Markdown = lazy(() => import('@/ui/Markdown'))

/** A lower score of the safety axis is the reason that is shown first. */
const MIN_SAFETY = 0.5

interface PublishProps {
  skill: Schemas['Skill']
  evaluations: readonly Schemas['Evaluation'][]
  /** Evaluation sources that the rubric allows. */
  allowed: readonly string[]
  /** Score that the rubric requires. */
  threshold: number | undefined
  onJudging(): void
}

/** Publish state of the skill and the unmet requirements of the publish gate. */
export function Publish({ skill, evaluations, allowed, threshold, onJudging }: PublishProps) {
  const [confirming, setConfirming] = useState<'publish' | 'withdraw' | null>(null)
  const path = { skillId: skill.id }
  const reason = publishBlocker(skill, evaluations, allowed, threshold)
  const publish = async () => {
    const { published_version } = await unwrap(client.POST('/api/v1/skills/{skillId}/publish', { params: { path } }))
    await invalidate('/api/v1/skills')
    toast(`Version ${published_version} published`)
  }
  const judge = useAction(async () => {
    const { queued } = await unwrap(client.POST('/api/v1/skills/{skillId}/evaluate', { params: { path } }))
    if (queued) onJudging()
    toast(queued ? `Version ${skill.version} is being evaluated` : 'Too many skills are waiting to be evaluated. Try again in a minute.')
  })
  const withdraw = async () => {
    await client.POST('/api/v1/skills/{skillId}/unpublish', { params: { path } })
    await invalidate('/api/v1/skills')
    toast(`${skill.name} withdrawn`)
  }
  return (
    <Section title="Shelf">
      <div className="flex flex-col gap-3">
        <PublishState skill={skill} />
        {reason && skill.published_version !== skill.version && (
          <p className="rounded-sm border border-line bg-warn-soft px-3 py-2" role="status">
            {reason}
          </p>
        )}
        <div className="flex flex-wrap gap-2">
          <Button kind="primary" needs="member" blocked={reason ?? false} onClick={() => setConfirming('publish')}>
            Publish v{skill.version}
          </Button>
          <Button needs="member" busy={judge.busy} onClick={judge.run}>
            Evaluate again
          </Button>
          {skill.published_version !== null && (
            <Button kind="danger" needs="member" onClick={() => setConfirming('withdraw')}>
              Withdraw
            </Button>
          )}
        </div>
        <ErrorLine error={judge.error} />
      </div>
      <ConfirmDialog open={confirming === 'publish'} onClose={() => setConfirming(null)} title={`Publish ${skill.name} v${skill.version}?`} action={`Publish v${skill.version}`} tone="primary" onConfirm={publish}>
        <p>Every organization on this server can then read and copy this text.</p>
        <p className="mt-2">
          {licenceText(skill.raw_source)}
          {licenceText(skill.raw_source) === NO_LICENCE && (
            <>
              : add a line <code>license:</code> to the front matter to say what others may do with it
            </>
          )}
        </p>
        <div className="card mt-2 max-h-60 overflow-auto p-2 text-fg" tabIndex={0} role="region" aria-label="Text of the skill">
          <Suspense fallback={<Skeleton className="h-40 w-full" />}>
            <Markdown text={skill.body} />
          </Suspense>
        </div>
      </ConfirmDialog>
      <ConfirmDialog open={confirming === 'withdraw'} onClose={() => setConfirming(null)} title={`Withdraw ${skill.name} from the shelf?`} action="Withdraw" onConfirm={withdraw}>
        Nobody can copy it any more. Existing copies stay.
      </ConfirmDialog>
    </Section>
  )
}

function PublishState({ skill }: { skill: Schemas['Skill'] }) {
  if (skill.published_version === null) return <Status tone="muted">private</Status>
  if (skill.published_version === skill.version) return <Status tone="ok">v{skill.version} is on the shelf</Status>
  return (
    <Status tone="warn">
      the shelf serves v{skill.published_version}, you have v{skill.version}
    </Status>
  )
}

/** Explains the publish gate. Mirrors the rule of the server, which decides. */
function publishBlocker(skill: Schemas['Skill'], evaluations: readonly Schemas['Evaluation'][], allowed: readonly string[], threshold: number | undefined): string | null {
  if (skill.published_version === skill.version) return `Version ${skill.version} is on the shelf already`
  const ofVersion = evaluations.filter((one) => one.skill_version === skill.version)
  if (ofVersion.some((one) => one.passed && allowed.includes(one.source))) return null
  if (ofVersion.length === 0) return `Version ${skill.version} has not been evaluated yet`
  const unsafe = ofVersion.find((one) => (one.axes['safety']?.score ?? 1) < MIN_SAFETY)
  if (unsafe) return `v${skill.version} can't be published because of safety findings: ${kindsOfFindings(unsafe.axes['safety']?.rationale ?? '')}`
  const best = ofVersion.filter((one) => allowed.includes(one.source)).reduce<number | null>((top, one) => Math.max(top ?? 0, one.overall_score), null)
  const reason = best === null ? `none of its evaluations is from ${allowed.join(' or ')}` : `it scored ${best.toFixed(2)} and did not pass${threshold === undefined ? '' : `; ${threshold.toFixed(2)} is required`}`
  return `v${skill.version} can't be published: ${reason}.`
}

/** What was found, without the passages: the text and the safety axis show them. */
function kindsOfFindings(rationale: string): string {
  const kinds = [...new Set(parseFindings(rationale).map((finding) => finding.kind))]
  return kinds.length === 0 ? rationale : `${kinds.join('; ')}.`
}
