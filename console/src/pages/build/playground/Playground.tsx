import { getRouteApi } from '@tanstack/react-router'
import { Diff, FlaskConical, History as HistoryIcon, Play, Plus, Save, Square } from 'lucide-react'
import { useMemo, useState, type KeyboardEvent } from 'react'
import { atVersion } from '@/lib/promptVersions'
import { usePersistentState } from '@/lib/usePersistentState'
import { MOD_KEY_LABEL, useShortcuts } from '@/lib/shortcuts'
import { Button, DockedDrawer, Page, usePermissionReason } from '@/ui'
import { ColumnCard } from './ColumnCard'
import { RunOnDataset } from '../evals/RunOnDataset'
import { CompareTexts } from './CompareTexts'
import { History } from './History'
import { InputPanel } from './InputPanel'
import { SaveAsVersion } from './SaveAsVersion'
import type { PlaygroundSearch } from './search'
import { addColumn, continuationProblem, continued, DEFAULT_SETUP, evalTargets, evaluationProblem, MAX_COLUMNS, notEvaluated, restoreSetup, validateSetup, type ColumnSetup, type Setup } from './setup'
import { isRunning, usePlaygroundRuns, type ColumnResults } from './usePlaygroundRuns'
import { useInitialSetup } from './useInitialSetup'

const route = getRouteApi('/shell/playground')

/** Playground: runs one input on up to ten models side by side. */
export function Playground() {
  const search: PlaygroundSearch = route.useSearch()
  const navigate = route.useNavigate()
  const [kept, setSetup] = usePersistentState<Setup>('playground', DEFAULT_SETUP)
  const setup = useMemo(() => restoreSetup(kept), [kept])
  const [focus, setFocus] = useState<number | null>(null)
  /** The message to write next, after an answer was taken over. */
  const [edited, setEdited] = useState<number | null>(null)
  const [open, setOpen] = useState<'save' | 'compare' | 'evaluate' | null>(null)
  const { results, setResults, start, stop, stopAll } = usePlaygroundRuns()
  const permissionReason = usePermissionReason('member')
  const set = (change: Partial<PlaygroundSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  useInitialSetup(
    search,
    setup,
    (initial) => {
      stopAll()
      setFocus(null)
      setSetup(initial.setup)
      setResults(initial.results)
    },
    () => set({ log: undefined, prompt: undefined }),
  )

  const problem = validateSetup(setup)
  const running = setup.columns.filter((column) => isRunning(results[column.id]))
  const run = (columns: readonly ColumnSetup[]) => {
    if (problem || permissionReason) return
    set({ run: undefined })
    start(setup, columns)
  }
  const runAll = () => running.length === 0 && run(setup.columns)
  useShortcuts({ 'mod+enter': runAll })
  useShortcuts({ Escape: stopAll }, running.length > 0)
  const stopByKey = (event: KeyboardEvent) => event.key === 'Escape' && running.length > 0 && stopAll()

  const change = (column: ColumnSetup) => setSetup({ ...setup, columns: setup.columns.map((one) => (one.id === column.id ? column : one)) })
  const shown = setup.columns.filter((column) => focus === null || column.id === focus)
  const outputs = setup.columns.flatMap((column) => {
    const cell = results[column.id]
    return cell && cell.output !== '' ? [{ id: column.id, name: columnName(column), text: cell.output }] : []
  })
  return (
    <DockedDrawer open={search.history === 'open'} onClose={() => set({ history: undefined })} label="History" head={<h2 className="py-1 text-base">History</h2>} content={<History shown={search.run} onOpen={(id) => set({ run: id })} />}>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto" onKeyDown={stopByKey}>
        <Page
          title="Playground"
          actions={
            <>
              <Button icon={<HistoryIcon size={14} aria-hidden />} aria-expanded={search.history === 'open'} onClick={() => set({ history: search.history ? undefined : 'open' })}>
                History
              </Button>
              <Button icon={<Diff size={14} aria-hidden />} blocked={outputs.length < 2 && 'Two answers are needed'} onClick={() => setOpen('compare')}>
                Compare
              </Button>
              <Button icon={<FlaskConical size={14} aria-hidden />} needs="member" blocked={evaluationProblem(setup) ?? false} onClick={() => setOpen('evaluate')}>
                Evaluate
              </Button>
              <Button icon={<Save size={14} aria-hidden />} needs="member" blocked={!setup.prompt && problem === 'Write a message first' && problem} onClick={() => setOpen('save')}>
                Save as version
              </Button>
              {running.length > 0 ? (
                <Button icon={<Square size={14} aria-hidden />} title="Esc" onClick={stopAll}>
                  Stop
                </Button>
              ) : (
                <Button kind="primary" needs="member" blocked={problem ?? false} icon={<Play size={14} aria-hidden />} title={`${MOD_KEY_LABEL}Enter`} onClick={runAll}>
                  Run
                </Button>
              )}
            </>
          }
        >
          <Announcement setup={setup} results={results} />
          <div className="@container">
            <div className="grid items-start gap-4 @3xl:grid-cols-[280px_minmax(0,1fr)] @4xl:grid-cols-[320px_minmax(0,1fr)] @6xl:grid-cols-[400px_minmax(0,1fr)]">
              <InputPanel setup={setup} onChange={setSetup} edited={edited} onFocused={() => setEdited(null)} />
              <div className="flex min-w-0 flex-col gap-3">
                <div className="relative grid gap-3 @3xl:auto-cols-[minmax(236px,1fr)] @3xl:grid-flow-col @3xl:overflow-x-auto @3xl:pb-1">
                  {shown.map((column) => (
                    <ColumnCard
                      key={column.id}
                      number={setup.columns.indexOf(column) + 1}
                      column={column}
                      shared={setup}
                      cell={results[column.id]}
                      focused={focus === column.id}
                      alone={setup.columns.length === 1}
                      blocked={problem}
                      unready={continuationProblem(setup.messages, results[column.id]?.output ?? '', results[column.id]?.calls ?? [])}
                      onChange={change}
                      onRemove={() => {
                        stop(column.id)
                        setFocus(null)
                        setSetup({ ...setup, columns: setup.columns.filter((one) => one !== column) })
                      }}
                      onRun={() => run([column])}
                      onStop={() => stop(column.id)}
                      onContinue={(output, calls) => {
                        const messages = continued(setup.messages, output, calls)
                        setSetup({ ...setup, messages })
                        setEdited(messages.length - Math.max(1, calls.length))
                      }}
                      onFocus={() => setFocus(focus === null ? column.id : null)}
                    />
                  ))}
                </div>
                <div>
                  <Button size="sm" icon={<Plus size={14} aria-hidden />} blocked={setup.columns.length >= MAX_COLUMNS && `The maximum is ${MAX_COLUMNS} columns`} onClick={() => setSetup({ ...setup, columns: addColumn(setup.columns) })}>
                    Add column
                  </Button>
                </div>
              </div>
            </div>
          </div>
        </Page>
      </div>
      {open === 'evaluate' && <RunOnDataset initial={evalTargets(setup)} note={notEvaluated(setup)} onClose={() => setOpen(null)} />}
      {open === 'save' && <SaveAsVersion setup={setup} onClose={() => setOpen(null)} />}
      {open === 'compare' && <CompareTexts outputs={outputs} onClose={() => setOpen(null)} />}
    </DockedDrawer>
  )
}

function columnName({ provider, model, prompt }: ColumnSetup): string {
  return `${provider}/${model}${prompt ? `, ${prompt.slug}${atVersion(prompt.version)}` : ''}`
}

/** Progress announcement for screen readers. */
function Announcement({ setup, results }: { setup: Setup; results: ColumnResults }) {
  const columnResults = setup.columns.flatMap((column) => results[column.id] ?? []).filter((cell) => cell.loggedId === null)
  const ended = columnResults.filter((cell) => !isRunning(cell)).length
  return (
    <p className="sr-only" role="status">
      {columnResults.length > 0 && `${ended} of ${columnResults.length} finished`}
    </p>
  )
}
