import { useState } from 'react'
import { Dialog, Select } from '@/ui'
import { DiffView } from '@/ui/DiffView'

interface Output {
  id: number
  name: string
  text: string
}

/** Word diff of two outputs. */
export function CompareTexts({ outputs, onClose }: { outputs: readonly Output[]; onClose(): void }) {
  const [left, setLeft] = useState(outputs[0]?.id ?? 0)
  const [right, setRight] = useState(outputs[1]?.id ?? 0)
  const textOf = (id: number) => outputs.find((output) => output.id === id)?.text ?? ''
  const options = outputs.map((output, at) => ({ value: String(output.id), label: `${at + 1}: ${output.name}` }))
  return (
    <Dialog open size="lg" onClose={onClose} title="Compare two answers">
      <div className="grid grid-cols-2 gap-2">
        <Select aria-label="First answer" value={String(left)} onChange={(event) => setLeft(Number(event.target.value))} options={options} />
        <Select aria-label="Second answer" value={String(right)} onChange={(event) => setRight(Number(event.target.value))} options={options} />
      </div>
      <DiffView before={textOf(left)} after={textOf(right)} label="Differences" />
    </Dialog>
  )
}
