import { Link } from '@tanstack/react-router'
import { Skeleton } from '@/ui'
import { byNamespace, usePrompts } from './usePrompts'

/** Prompt sidebar, hidden on narrow screens. */
export function PromptTree() {
  const { list, prompts } = usePrompts()
  return (
    <nav aria-label="Prompts" className="w-56 shrink-0 overflow-y-auto border-r border-line px-2 py-3 max-xl:hidden">
      <Link to="/prompts" className="mb-2 block rounded-sm px-2 py-1 text-xs text-muted hover:bg-sunken">
        All prompts
      </Link>
      {!list.data && <Skeleton className="mx-2 h-24" />}
      {byNamespace(prompts).map(([namespace, rows]) => (
        <section key={namespace} className="mb-3">
          <h2 className="truncate px-2 pb-0.5 font-mono text-xs font-medium text-muted">{namespace}/</h2>
          <ul>
            {rows.map((prompt) => (
              <li key={prompt.id}>
                <Link
                  to="/prompts/$namespace/$slug"
                  params={prompt}
                  activeProps={{ className: 'bg-accent-soft text-accent', 'aria-current': 'page' }}
                  className="flex min-h-7 items-center gap-2 rounded-sm px-2 hover:bg-sunken"
                >
                  <code className="min-w-0 flex-1 truncate">{prompt.slug}</code>
                  <span className="text-xs text-muted tabular-nums">v{prompt.version}</span>
                </Link>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </nav>
  )
}
