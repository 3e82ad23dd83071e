import { MOD_KEY_LABEL } from '@/lib/shortcuts'
import { Dialog } from '@/ui'
import { NAV } from './nav'

const ANYWHERE: readonly [string, string][] = [
  [`${MOD_KEY_LABEL}K`, 'Search or jump to a page, log, session or key'],
  [`${MOD_KEY_LABEL}B`, 'Open or close the navigation'],
  ['?', 'This list'],
]
const LOGS: readonly [string, string][] = [
  ['j / k', 'Next or previous row'],
  ['Enter', 'Open the row'],
  ['Esc', 'Close the drawer'],
  ['f', 'Drawer at full width'],
  ['1 – 6', 'Tabs of the drawer'],
  ['c', 'Copy the request as curl'],
  ['p', 'Open it in the playground'],
  ['/', 'Search'],
  ['Space', 'Pause or resume the live tail'],
]
const BUILD: readonly [string, string][] = [
  [`${MOD_KEY_LABEL}S`, 'Save the prompt or skill that you edit'],
  [`${MOD_KEY_LABEL}Enter`, 'Run the playground'],
  ['Esc', 'Stop all responses'],
]

export function Help({ onClose }: { onClose(): void }) {
  const pages = NAV.flatMap((group) => group.items)
    .filter((item) => item.key)
    .map((item): [string, string] => [`g ${item.key}`, item.name])
  return (
    <Dialog open onClose={onClose} title="Keyboard shortcuts" size="lg">
      <div className="grid gap-6 pb-4 sm:grid-cols-3" role="group" aria-label="Shortcuts" tabIndex={0}>
        <List title="Anywhere" keys={ANYWHERE} />
        <List title="Go to" keys={pages} />
        <div className="flex flex-col gap-6">
          <List title="Logs" keys={LOGS} />
          <List title="Prompts, skills, playground" keys={BUILD} />
        </div>
      </div>
    </Dialog>
  )
}

function List({ title, keys }: { title: string; keys: readonly [string, string][] }) {
  return (
    <section>
      <h3 className="pb-2 text-xs text-muted">{title}</h3>
      <dl className="flex flex-col gap-1.5">
        {keys.map(([key, what]) => (
          <div key={key} className="flex items-baseline gap-2">
            <dt className="min-w-16 shrink-0">
              <kbd className="kbd">{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </section>
  )
}
