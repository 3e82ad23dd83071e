import { Link } from '@tanstack/react-router'
import { Activity } from 'lucide-react'
import { requestSnippets } from '@/lib/snippets'
import { Empty, Snippets } from '@/ui'

export function LogsEmpty() {
  return (
    <Empty
      icon={<Activity size={24} aria-hidden />}
      title="No requests in this range"
      action={
        <Link to="/start" className="btn btn-primary">
          First steps
        </Link>
      }
      more={<Snippets label="Language" snippets={requestSnippets({ origin: location.origin, key: null, provider: 'sandbox', model: 'sandbox-small' })} />}
    >
      Each request through the gateway is listed here with its conversation, timing and cost. Choose a longer range, or send one:
    </Empty>
  )
}
