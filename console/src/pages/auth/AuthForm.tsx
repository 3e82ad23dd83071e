import { Link } from '@tanstack/react-router'
import { useEffect, useState, type FormEvent, type ReactNode } from 'react'
import { asApiError, type ApiError } from '@/api/error'
import { Button, ErrorLine } from '@/ui'

interface FrameProps {
  title: string
  about?: ReactNode
  action: string
  /** Receives the form data; a thrown error is displayed. */
  onSubmit(values: Record<string, string>): Promise<void>
  children(error: ApiError | null): ReactNode
  /** Whether a field shows this error. */
  shownInField?: (error: ApiError) => boolean
  below?: ReactNode
}

/** Centered form on an otherwise empty page. */
export function AuthForm({ title, about, action, onSubmit, children, shownInField, below }: FrameProps) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<ApiError | null>(null)
  useEffect(() => {
    document.title = `${title} · Gateway`
  }, [title])
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault()
    const values = Object.fromEntries([...new FormData(event.currentTarget)].map(([name, value]) => [name, String(value)]))
    setBusy(true)
    setError(null)
    try {
      await onSubmit(values)
    } catch (failure) {
      setError(asApiError(failure))
    } finally {
      setBusy(false)
    }
  }
  const elsewhere = error && Object.keys(error.fields).length === 0 && !shownInField?.(error)
  return (
    <main className="grid min-h-dvh place-items-center px-4 py-10">
      <div className="w-full max-w-[380px]">
        <div className="mb-6 flex items-center gap-2.5">
          <img src="/console/icon.svg" alt="" width={28} height={28} />
          <span className="text-lg font-semibold">Gateway</span>
        </div>
        <form className="card flex flex-col gap-3 p-5" onSubmit={(event) => void submit(event)}>
          <h1 className="text-xl">{title}</h1>
          {about && <p className="-mt-2 text-muted">{about}</p>}
          {children(error)}
          {elsewhere && <ErrorLine error={error} />}
          <Button kind="primary" type="submit" busy={busy} className="mt-1 min-h-9">
            {action}
          </Button>
        </form>
        {below && <p className="mt-4 text-center text-muted">{below}</p>}
        <p className="mt-4 text-center text-muted">
          <a href="/console/docs/" target="_blank" rel="noopener" className="font-medium text-accent underline">
            Documentation
          </a>
        </p>
      </div>
    </main>
  )
}

export function ToSignIn() {
  return (
    <>
      Already have an account?{' '}
      <Link to="/login" search={{}} className="font-medium text-accent underline">
        Sign in
      </Link>
    </>
  )
}
