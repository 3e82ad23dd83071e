import { getRouteApi } from '@tanstack/react-router'
import { Diff, History as HistoryIcon, Play, Plus, Save, Square } from 'lucide-react'
import { useState, type KeyboardEvent } from 'react'
import { useRemembered } from '@/lib/remembered'
import { MOD, useShortcuts } from '@/lib/shortcuts'
import { Button, Docked, Page, useReason } from '@/ui'
import { ColumnCard } from './ColumnCard'
import { CompareTexts } from './CompareTexts'
import { History } from './History'
import { Question } from './Question'
import { SaveAsVersion } from './SaveAsVersion'
import type { PlaygroundSearch } from './search'
import { addColumn, FIRST_SETUP, MOST_COLUMNS, problemOf, type ColumnSetup, type Setup } from './setup'
import { isBusy, usePlay, type Cells } from './usePlay'
import { useStart } from './useStart'

const route = getRouteApi('/shell/playground')

/** The same question to up to ten models, side by side. */
export function Playground() {
  const search: PlaygroundSearch = route.useSearch()
  const navigate = route.useNavigate()
  const [setup, setSetup] = useRemembered<Setup>('playground', FIRST_SETUP)
  const [focus, setFocus] = useState<number | null>(null)
  const [open, setOpen] = useState<'save' | 'compare' | null>(null)
  const { cells, setCells, start, stop, stopAll } = usePlay()
  const mayNot = useReason('member')
  const set = (change: Partial<PlaygroundSearch>) => void navigate({ search: (before) => ({ ...before, ...change }), replace: true })
  useStart(
    search,
    setup,
    (found) => {
      stopAll()
      setFocus(null)
      setSetup(found.setup)
      setCells(found.cells)
    },
    () => set({ log: undefined, prompt: undefined }),
  )

  const problem = problemOf(setup)
  const running = setup.columns.filter((column) => isBusy(cells[column.id]))
  const run = (columns: readonly ColumnSetup[]) => {
    if (problem || mayNot) return
    set({ run: undefined })
    start(setup, columns)
  }
  const runAll = () => running.length === 0 && run(setup.columns)
  useShortcuts({ 'mod+enter': runAll })
  useShortcuts({ Escape: stopAll }, running.length > 0)
  const stopByKey = (event: KeyboardEvent) => event.key === 'Escape' && running.length > 0 && stopAll()

  const change = (column: ColumnSetup) => setSetup({ ...setup, columns: setup.columns.map((one) => (one.id === column.id ? column : one)) })
  const shown = setup.columns.filter((column) => focus === null || column.id === focus)
  const answers = setup.columns.flatMap((column) => {
    const cell = cells[column.id]
    return cell && cell.output !== '' ? [{ id: column.id, name: `${column.provider}/${column.model}`, text: cell.output }] : []
  })
  return (
    <Docked open={search.history === 'open'} onClose={() => set({ history: undefined })} label="History" head={<h2 className="py-1 text-base">History</h2>} content={<History shown={search.run} onOpen={(id) => set({ run: id })} />}>
      <div className="flex min-h-0 flex-1 flex-col overflow-y-auto" onKeyDown={stopByKey}>
        <Page
          title="Playground"
          actions={
            <>
              <Button icon={<HistoryIcon size={14} aria-hidden />} aria-expanded={search.history === 'open'} onClick={() => set({ history: search.history ? undefined : 'open' })}>
                History
              </Button>
              <Button icon={<Diff size={14} aria-hidden />} blocked={answers.length < 2 && 'Two answers are needed'} onClick={() => setOpen('compare')}>
                Compare
              </Button>
              <Button icon={<Save size={14} aria-hidden />} needs="member" blocked={!setup.prompt && problem === 'Write a message first' && problem} onClick={() => setOpen('save')}>
                Save as version
              </Button>
              {running.length > 0 ? (
                <Button icon={<Square size={14} aria-hidden />} title="Esc" onClick={stopAll}>
                  Stop
                </Button>
              ) : (
                <Button kind="primary" needs="member" blocked={problem ?? false} icon={<Play size={14} aria-hidden />} title={`${MOD}Enter`} onClick={runAll}>
                  Run
                </Button>
              )}
            </>
          }
        >
          <Announcement setup={setup} cells={cells} />
          <div className="@container">
            <div className="grid items-start gap-4 @3xl:grid-cols-[280px_minmax(0,1fr)] @6xl:grid-cols-[360px_minmax(0,1fr)]">
              <Question setup={setup} onChange={setSetup} />
              <div className="flex min-w-0 flex-col gap-3">
                <div className="relative grid gap-3 @3xl:auto-cols-[minmax(236px,1fr)] @3xl:grid-flow-col @3xl:overflow-x-auto @3xl:pb-1">
                  {shown.map((column) => (
                    <ColumnCard
                      key={column.id}
                      number={setup.columns.indexOf(column) + 1}
                      column={column}
                      shared={setup.params}
                      cell={cells[column.id]}
                      focused={focus === column.id}
                      alone={setup.columns.length === 1}
                      blocked={problem}
                      onChange={change}
                      onRemove={() => {
                        stop(column.id)
                        setFocus(null)
                        setSetup({ ...setup, columns: setup.columns.filter((one) => one !== column) })
                      }}
                      onRun={() => run([column])}
                      onStop={() => stop(column.id)}
                      onFocus={() => setFocus(focus === null ? column.id : null)}
                    />
                  ))}
                </div>
                <div>
                  <Button size="sm" icon={<Plus size={14} aria-hidden />} blocked={setup.columns.length >= MOST_COLUMNS && `${MOST_COLUMNS} are the most`} onClick={() => setSetup({ ...setup, columns: addColumn(setup.columns) })}>
                    Add column
                  </Button>
                </div>
              </div>
            </div>
          </div>
        </Page>
      </div>
      {open === 'save' && <SaveAsVersion setup={setup} onClose={() => setOpen(null)} />}
      {open === 'compare' && <CompareTexts answers={answers} onClose={() => setOpen(null)} />}
    </Docked>
  )
}

/** How far it is, for those who do not see the columns. */
function Announcement({ setup, cells }: { setup: Setup; cells: Cells }) {
  const asked = setup.columns.flatMap((column) => cells[column.id] ?? [])
  const ended = asked.filter((cell) => !isBusy(cell)).length
  return (
    <p className="sr-only" role="status">
      {asked.length > 0 && `${ended} of ${asked.length} finished`}
    </p>
  )
}
