import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { ChangeList, type Entry } from './ChangeList'

/** One entry: where it came from, what changed, and its place in the chain. */
export function EntryDetail({ entry }: { entry: Entry }) {
  const { zone } = usePrefs()
  const facts: [string, string | null | undefined][] = [
    ['Time', time(entry.at, zone, 'full')],
    ['Actor', [entry.actor.type, entry.actor.name, entry.actor.id, `via ${entry.actor.via}`].filter(Boolean).join(' · ')],
    ['Action', entry.action],
    ['Target', [entry.target.type, entry.target.name, entry.target.id].filter(Boolean).join(' · ')],
    ['Outcome', [entry.outcome, entry.status].filter(Boolean).join(' ')],
    ['Reason', entry.reason],
    ['Address', entry.ip],
    ['User agent', entry.user_agent],
    ['Request', entry.request_id],
    ['Previous hash', entry.prev_hash],
    ['Hash', entry.hash],
  ]
  return (
    <div className="flex flex-col gap-4 p-4">
      <dl className="grid grid-cols-[max-content_1fr] gap-x-4 gap-y-1">
        {facts
          .filter(([, text]) => text)
          .map(([name, text]) => (
            <div key={name} className="contents">
              <dt className="text-muted">{name}</dt>
              <dd className="min-w-0 break-all">{text}</dd>
            </div>
          ))}
      </dl>
      {entry.changes && (
        <section>
          <h2 className="text-sm">Changes</h2>
          <ChangeList changes={entry.changes} />
        </section>
      )}
    </div>
  )
}
