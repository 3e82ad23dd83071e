import { useNavigate } from '@tanstack/react-router'
import { Copy as CopyIcon } from 'lucide-react'
import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { ago, plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { useNow } from '@/lib/useNow'
import { Badge, Button, ErrorLine, toast } from '@/ui'
import { Score } from './Score'

type Skill = Schemas['Skill']

/** A skill of the shelf with its publisher and a button to copy it. */
export function ShelfCard({ skill, onOpen }: { skill: Skill; onOpen(): void }) {
  const now = useNow(60_000)
  return (
    <li className="card flex flex-col gap-2 p-3">
      <div className="flex items-start gap-2">
        <button type="button" className="name min-h-6 min-w-0 flex-1 truncate text-left font-mono text-xs font-medium text-accent underline" onClick={onOpen}>
          {skill.name}
        </button>
        {skill.latest_evaluation && <Score {...skill.latest_evaluation} />}
      </div>
      <p className="line-clamp-3 flex-1 text-muted">{skill.headline || skill.description}</p>
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1 text-xs text-muted">
        <span>
          by <Publisher skill={skill} />
        </span>
        <span className="tabular-nums">v{skill.published_version ?? skill.version}</span>
        <span>{plural(skill.adoptions, 'copy', 'copies')}</span>
        <span>{ago(skill.published_at, now)}</span>
        <CopySkill skill={skill} />
      </div>
    </li>
  )
}

/** The organization that published a skill: its name if the user is a member, else its short name. */
export function Publisher({ skill }: { skill: Skill }) {
  const org = useMe().orgs.find((one) => one.id === skill.org_id)
  return org ? <>{org.name}</> : <code>{skill.publisher ?? '–'}</code>
}

/** Copies a skill of the shelf. If the name is taken the copy gets another name, which is shown. */
export function CopySkill({ skill }: { skill: Skill }) {
  const me = useMe()
  const navigate = useNavigate()
  const adopt = useAction(async () => {
    const adopted = await unwrap(client.POST('/api/v1/skills/public/{skillId}/adopt', { params: { path: { skillId: skill.id } } }))
    await invalidate('/api/v1/skills')
    toast(adopted.renamed ? `You already have a skill ${skill.name}, so the copy is called ${adopted.name}` : `${adopted.name} copied`)
    await navigate({ to: '/skills/$skillId', params: { skillId: adopted.skill.id } })
  })
  if (skill.org_id === me.orgId) return <Badge>yours</Badge>
  return (
    <span className="ml-auto flex flex-col items-end gap-1">
      <Button size="sm" needs="member" busy={adopt.busy} icon={<CopyIcon size={14} aria-hidden />} aria-label={`Copy ${skill.name}`} onClick={adopt.run}>
        Copy
      </Button>
      <ErrorLine error={adopt.error} />
    </span>
  )
}
