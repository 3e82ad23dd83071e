import { useState } from 'react'
import { Field, Input } from '@/ui'
import { Json } from '@/ui/Json'
import type { LogDetail } from './copyAs'

/** Raw request and response bodies, with search. */
export function Raw({ log }: { log: LogDetail }) {
  const [search, setSearch] = useState('')
  return (
    <>
      <Field label="Find in bodies" quiet>
        <Input type="search" placeholder="Find in bodies" value={search} onChange={(event) => setSearch(event.target.value)} />
      </Field>
      <Body name="Request" value={log.request} stored={log.request_stored} search={search} />
      <Body name="Response" value={log.response} stored={log.response_stored} search={search} />
    </>
  )
}

function Body({ name, value, stored, search }: { name: string; value: unknown; stored: LogDetail['request_stored']; search: string }) {
  return (
    <section className="flex flex-col gap-1">
      <h3 className="text-xs text-muted">
        {name}
        {stored === 'truncated' && ', its first 256 KiB'}
        {stored === 'off' && ', not kept'}
      </h3>
      {stored !== 'off' && <Json value={value} label={name} search={search} />}
    </section>
  )
}
