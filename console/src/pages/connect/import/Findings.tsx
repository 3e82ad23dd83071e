import { Search } from 'lucide-react'
import { useState } from 'react'
import { integer } from '@/lib/format'
import { Badge, Button, Field, Input, NoMatch, Pager, Section, Status as Dot } from '@/ui'
import { countByStatus, selectFindings, STATUS_NAMES, STATUSES, type Finding, type Status } from './sources'

const PAGE = 100

/** What became of each field of the source. */
export function Findings({ findings }: { findings: readonly Finding[] }) {
  const [status, setStatus] = useState<Status>()
  const [words, setWords] = useState('')
  const [limit, setLimit] = useState(PAGE)
  const counts = countByStatus(findings)
  const found = selectFindings(findings, status, words)
  const choose = (next: Status | undefined) => {
    setStatus(next)
    setLimit(PAGE)
  }
  return (
    <Section flush title="Findings" aside={<span className="text-xs text-muted">one for every field of the source</span>}>
      <div className="flex flex-wrap items-center gap-2 px-3 pb-3">
        <div className="flex flex-wrap gap-1" role="group" aria-label="Status">
          <Button size="sm" kind={status === undefined ? 'plain' : 'ghost'} aria-pressed={status === undefined} onClick={() => choose(undefined)}>
            All {integer(findings.length)}
          </Button>
          {STATUS_NAMES.map((name) => (
            <Button key={name} size="sm" kind={status === name ? 'plain' : 'ghost'} aria-pressed={status === name} title={STATUSES[name].about} onClick={() => choose(name)}>
              <Dot tone={STATUSES[name].tone}>
                {name} {integer(counts[name])}
              </Dot>
            </Button>
          ))}
        </div>
        <div className="relative ml-auto w-full sm:w-56">
          <Field label="Search findings" quiet>
            <Search size={14} className="pointer-events-none absolute top-2 left-2 text-muted" aria-hidden />
            <Input type="search" className="pl-7" placeholder="Field or words" value={words} onChange={(event) => setWords(event.target.value)} />
          </Field>
        </div>
      </div>
      {found.length === 0 ? (
        <NoMatch
          what="findings"
          onClear={() => {
            choose(undefined)
            setWords('')
          }}
        />
      ) : (
        <ul aria-label="Findings">
          {found.slice(0, limit).map((finding) => (
            <li key={finding.path} className="grid grid-cols-[96px_minmax(0,1fr)] items-start gap-x-3 border-t border-line px-3 py-2 lg:grid-cols-[96px_minmax(0,2fr)_minmax(0,3fr)]">
              <span>
                <Badge tone={STATUSES[finding.status].tone}>{finding.status}</Badge>
              </span>
              <code className="pt-0.5 break-all">{finding.path}</code>
              <span className="break-words text-muted max-lg:col-start-2">{finding.message}</span>
            </li>
          ))}
        </ul>
      )}
      <Pager shown={Math.min(limit, found.length)} what="findings" more={found.length > limit} busy={false} onMore={() => setLimit(limit + PAGE)} />
    </Section>
  )
}
