import { useState } from 'react'
import { api, client, unwrap } from '@/api/client'
import { invalidate } from '@/api/query'
import { time } from '@/lib/format'
import { usePrefs } from '@/lib/prefs'
import { useAction } from '@/lib/useAction'
import { Button, ErrorLine, ErrorPanel, Field, SecretInput, Section, SkeletonRows, Status, toast } from '@/ui'

const PATH = '/api/v1/mcp-connections/{server}'

/** The signed-in user's own headers for a server. */
export function OwnCredentials({ server }: { server: string }) {
  const { zone } = usePrefs()
  const [values, setValues] = useState<Record<string, string>>({})
  const [replacing, setReplacing] = useState(false)
  const params = { path: { server } }
  const connection = api.useQuery('get', PATH, { params })
  const finish = async (message: string) => {
    setValues({})
    setReplacing(false)
    await invalidate(PATH, '/api/v1/orgs/{orgId}/mcp-servers')
    toast(message)
  }
  const save = useAction(async () => {
    await unwrap(client.PUT(PATH, { params, body: { headers: values } }))
    await finish('Your credentials are stored')
  })
  const remove = useAction(async () => {
    await unwrap(client.DELETE(PATH, { params }))
    await finish('Your credentials deleted')
  })
  if (connection.isError) return <ErrorPanel error={connection.error} what="your credentials" onRetry={() => void connection.refetch()} />
  if (!connection.data) return <SkeletonRows rows={2} />
  const { state, names, updated_at } = connection.data
  const isStored = updated_at !== null
  return (
    <Section title="Your credentials" aside={<Status tone={state === 'active' ? 'ok' : 'warn'}>{state === 'active' ? 'stored' : isStored ? 'refused by the server' : 'missing'}</Status>}>
      {isStored && !replacing ? (
        <div className="flex flex-wrap items-center gap-2">
          <p className="min-w-0 flex-1 text-muted">
            {names.join(', ')}, stored {time(updated_at, zone)}. Only your calls use them.
          </p>
          <Button size="sm" onClick={() => setReplacing(true)}>
            Replace
          </Button>
          <Button size="sm" busy={remove.busy} onClick={remove.run}>
            Delete
          </Button>
        </div>
      ) : (
        <form
          className="flex flex-col gap-3"
          onSubmit={(event) => {
            event.preventDefault()
            save.run()
          }}
        >
          <p className="text-muted">Your calls are sent with these headers. They are encrypted, and nobody can read them back.</p>
          <div className="grid gap-3 sm:grid-cols-2">
            {names.map((name) => (
              <Field key={name} label={name}>
                <SecretInput mono required autoComplete="off" value={values[name] ?? ''} onChange={(event) => setValues({ ...values, [name]: event.target.value })} />
              </Field>
            ))}
          </div>
          <div className="flex gap-2">
            <Button type="submit" kind="primary" busy={save.busy}>
              Store credentials
            </Button>
            {replacing && <Button onClick={() => setReplacing(false)}>Cancel</Button>}
          </div>
        </form>
      )}
      <ErrorLine error={save.error ?? remove.error} />
    </Section>
  )
}
