import { Link } from '@tanstack/react-router'
import { Rocket } from 'lucide-react'
import { requestSnippets } from '@/lib/snippets'
import { Empty, Snippets } from '@/ui'

/** Empty state before the first request. */
export function FirstRun() {
  return (
    <div className="card">
      <Empty
        icon={<Rocket size={24} aria-hidden />}
        title="Send your first request"
        action={
          <Link to="/start" className="btn btn-primary">
            Show me how
          </Link>
        }
        more={<Snippets label="Language" snippets={requestSnippets({ origin: location.origin, key: null, provider: 'sandbox', model: 'sandbox-small' })} />}
      >
        Requests, errors, cost and latency appear here with the first request. The sandbox provider needs no account.
      </Empty>
    </div>
  )
}
