/** Error boundary page. It does not use the UI kit, which may be the part that failed. */
export function ErrorPage({ error }: { error: unknown }) {
  return (
    <main role="alert" className="mx-auto flex w-full max-w-[560px] flex-col items-start gap-3 px-4 py-16">
      <h1 className="text-xl">Something went wrong</h1>
      <p className="text-muted">No data was changed. Details:</p>
      <pre className="w-full overflow-x-auto rounded-md border border-line bg-sunken p-3">{error instanceof Error ? error.message : String(error)}</pre>
      <button type="button" className="btn btn-primary" onClick={() => location.reload()}>
        Reload
      </button>
    </main>
  )
}
