import { ArrowDown, ArrowUp } from 'lucide-react'
import { Button } from '@/ui'

interface StepHeadProps {
  title: string
  /** Null if the item is not in the list. */
  position: { at: number; of: number } | null
  onStep(by: number): void
}

/** Head of a drawer whose items are stepped through. */
export function StepHead({ title, position, onStep }: StepHeadProps) {
  return (
    <div className="flex items-center gap-1">
      <h2 className="name min-w-0 flex-1 truncate py-1 text-base">
        {title}
        {position && (
          <span className="ml-2 text-xs font-normal text-muted tabular-nums" role="status">
            {position.at} of {position.of}
          </span>
        )}
      </h2>
      <Button size="sm" kind="ghost" square aria-label="Previous (k)" title="k" blocked={position?.at === 1 && 'It is the first'} icon={<ArrowUp size={14} aria-hidden />} onClick={() => onStep(-1)} />
      <Button size="sm" kind="ghost" square aria-label="Next (j)" title="j" blocked={position !== null && position.at === position.of && 'It is the last'} icon={<ArrowDown size={14} aria-hidden />} onClick={() => onStep(1)} />
    </div>
  )
}
