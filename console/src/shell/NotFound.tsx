import { Link } from '@tanstack/react-router'

export function NotFound() {
  return (
    <div className="mx-auto flex max-w-[480px] flex-col items-start gap-3 px-4 py-16">
      <h1 className="text-xl">Page not found</h1>
      <p className="text-muted">The address may be wrong, or the item may have been deleted.</p>
      <Link to="/" className="btn">
        Go to the overview
      </Link>
    </div>
  )
}
