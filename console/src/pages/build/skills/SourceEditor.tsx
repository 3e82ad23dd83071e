import { CircleCheck } from 'lucide-react'
import { lazy, Suspense, useMemo } from 'react'
import type { ApiError } from '@/api/error'
import { plural } from '@/lib/format'
import { validateSkillSource, sourceLineOf, type SourceProblem } from '@/lib/frontmatter'
import { Skeleton } from '@/ui'

const NO_FINDINGS: readonly SourceProblem[] = []
const Editor = lazy(() => import('./Editor'))

interface SourceEditorProps {
  value: string
  onChange(value: string): void
  readOnly?: boolean
  autoFocus?: boolean
  /** Safety findings in this text. */
  findings?: readonly SourceProblem[]
  /** Server error for this text. */
  refused: ApiError | null
}

/** Skill editor with live validation; the list below repeats the diagnostics. */
export function SourceEditor({ value, onChange, readOnly, autoFocus, findings = NO_FINDINGS, refused }: SourceEditorProps) {
  const problems = useMemo(() => {
    const found: SourceProblem[] = [...validateSkillSource(value), ...findings]
    if (refused?.code === 'invalid_frontmatter') found.push({ line: sourceLineOf(refused.message) ?? lineOfField(value, refused), message: refused.message })
    // The server may report the same problem again.
    const once = found.filter((problem, at) => found.findIndex((other) => other.line === problem.line && other.message.slice(0, 24) === problem.message.slice(0, 24)) === at)
    return once.toSorted((a, b) => a.line - b.line)
  }, [value, findings, refused])
  return (
    <div className="flex flex-col gap-2">
      <Suspense fallback={<Skeleton className="h-80 w-full" />}>
        <Editor label="SKILL.md" value={value} problems={problems} readOnly={readOnly} autoFocus={autoFocus} onChange={onChange} />
      </Suspense>
      {problems.length === 0 ? (
        <p className="flex items-center gap-1.5 text-xs text-ok" role="status">
          <CircleCheck size={14} aria-hidden /> Front matter is valid
        </p>
      ) : (
        <div role="status" className="text-xs text-err">
          <p>{plural(problems.length, 'problem')}</p>
          <ul aria-label="Problems">
            {problems.map((problem, at) => (
              <li key={at}>
                Line {problem.line}: {problem.message}
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  )
}

function lineOfField(source: string, refused: ApiError): number {
  const [field] = Object.keys(refused.fields)
  const at = field === undefined ? -1 : source.split('\n').findIndex((line) => line.startsWith(`${field}:`))
  return at < 0 ? 1 : at + 1
}
