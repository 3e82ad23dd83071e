import { useState } from 'react'
import { client, unwrap, type Schemas } from '@/api/client'
import { plural } from '@/lib/format'
import { useAction } from '@/lib/useAction'
import { download } from '@/lib/download'
import { Button, CopyButton, Dialog, ErrorLine, Field, Input, Table, type Column } from '@/ui'

type Case = Schemas['Case']

const COLUMNS: readonly Column<Case>[] = [
  { key: 'input', header: 'Input', className: 'max-w-72 truncate', cell: (row) => (typeof row.input === 'string' ? row.input : <code>{JSON.stringify(row.input)}</code>) },
  { key: 'expected', header: 'Expected', className: 'max-w-48 truncate', cell: (row) => (row.expected === null ? '–' : typeof row.expected === 'string' ? row.expected : <code>{JSON.stringify(row.expected)}</code>) },
]

/** Random sample of cases, reproducible by seed. */
export function Sample({ dataset, version, onClose }: { dataset: Schemas['Dataset']; version: number | undefined; onClose(): void }) {
  const [size, setSize] = useState('10')
  const [seed, setSeed] = useState('')
  const [drawn, setDrawn] = useState<Schemas['Sample'] | null>(null)
  const draw = useAction(async () => {
    const sample = await unwrap(client.POST('/api/v1/datasets/{datasetId}/sample', { params: { path: { datasetId: dataset.id } }, body: { size: Number(size), version, seed: seed === '' ? null : Number(seed) } }))
    setDrawn(sample)
    setSeed(String(sample.seed))
  })
  return (
    <Dialog
      open
      size="lg"
      onClose={onClose}
      title="Sample cases"
      description={`From ${version === undefined ? 'the working copy' : `version ${version}`}. The same seed draws the same cases.`}
      onSubmit={draw.run}
      actions={
        <>
          {drawn && (
            <Button onClick={() => download(`${dataset.name}-sample-${drawn.seed}.ndjson`, 'application/x-ndjson', drawn.cases.map((one) => JSON.stringify(one)).join('\n'))}>Download</Button>
          )}
          <Button kind="primary" type="submit" busy={draw.busy}>
            Draw
          </Button>
        </>
      }
    >
      <div className="grid grid-cols-2 gap-3">
        <Field label="Cases" error={draw.fields['size']}>
          <Input type="number" required min={1} max={10000} autoFocus value={size} onChange={(event) => setSize(event.target.value)} />
        </Field>
        <Field label="Seed" error={draw.fields['seed']} hint="Leave empty for a random one">
          <Input type="number" min={0} value={seed} onChange={(event) => setSeed(event.target.value)} />
        </Field>
      </div>
      {Object.keys(draw.fields).length === 0 && <ErrorLine error={draw.error} />}
      {drawn && (
        <div className="card">
          <p className="flex items-center gap-1 px-3 py-1 text-xs text-muted" role="status">
            {plural(drawn.cases.length, 'case')}, seed <code>{drawn.seed}</code> <CopyButton value={String(drawn.seed)} label="Copy the seed" />
          </p>
          <Table label="Sample" columns={COLUMNS} rows={drawn.cases} rowKey={(row) => row.id} />
        </div>
      )}
    </Dialog>
  )
}
