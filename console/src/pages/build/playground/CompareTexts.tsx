import { useState } from 'react'
import { Dialog, Select } from '@/ui'
import { DiffView } from '@/ui/DiffView'

interface Answer {
  id: number
  name: string
  text: string
}

/** Two answers, word by word. */
export function CompareTexts({ answers, onClose }: { answers: readonly Answer[]; onClose(): void }) {
  const [left, setLeft] = useState(answers[0]?.id ?? 0)
  const [right, setRight] = useState(answers[1]?.id ?? 0)
  const textOf = (id: number) => answers.find((answer) => answer.id === id)?.text ?? ''
  const options = answers.map((answer, at) => ({ value: String(answer.id), label: `${at + 1}: ${answer.name}` }))
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
