import { cx } from '@/lib/cx'
import type { Schemas } from '@/api/client'

interface Card {
  name: string
  about: string
}

const CARDS: Readonly<Record<string, Card>> = {
  contains: { name: 'Contains text', about: 'A word or phrase is in the answer' },
  not_contains: { name: 'Does not contain text', about: 'A word or phrase is absent' },
  equals: { name: 'Equals the expected value', about: 'Exactly the given or expected text' },
  regex: { name: 'Matches a regular expression', about: 'A pattern is found in the answer' },
  starts_with: { name: 'Starts with text', about: 'The answer begins with it' },
  ends_with: { name: 'Ends with text', about: 'The answer ends with it' },
  is_json: { name: 'Valid JSON', about: 'The answer can be parsed' },
  json_schema: { name: 'Matches a JSON schema', about: 'Fields and types are as required' },
  length: { name: 'Length', about: 'Not too short and not too long' },
  latency: { name: 'Latency', about: 'The response came in time' },
  cost: { name: 'Cost', about: 'The call was cheap enough' },
  status_ok: { name: 'Request succeeded', about: 'The status is below 400' },
  levenshtein: { name: 'Similar spelling', about: 'Edit distance to a reference' },
  embedding: { name: 'Similar meaning', about: 'Embeddings close to a reference' },
  judge: { name: 'Judged by a model', about: 'A model scores it by your criteria' },
}

const KINDS = [
  { kind: 'static', name: 'Checks' },
  { kind: 'similarity', name: 'Close to a reference' },
  { kind: 'llm', name: 'Another model' },
] as const

interface EvaluatorCardsProps {
  evaluators: readonly Schemas['Evaluator'][]
  chosen: string
  onChoose(evaluator: string): void
}

/** Evaluators as a group of cards. Arrow keys move between them, as in every radio group. */
export function EvaluatorCards({ evaluators, chosen, onChoose }: EvaluatorCardsProps) {
  return (
    <fieldset className="flex flex-col gap-2">
      <legend className="mb-1 text-sm font-medium">What is checked</legend>
      {KINDS.map(({ kind, name }) => (
        <div key={kind}>
          <p className="mb-1 text-xs text-muted">{name}</p>
          <div className="grid grid-cols-2 gap-2 sm:grid-cols-3">
            {evaluators
              .filter((one) => one.type === kind)
              .map(({ evaluator, description }) => (
                <label
                  key={evaluator}
                  title={description}
                  className={cx('relative flex min-w-0 flex-col rounded-md border px-3 py-2 focus-within:outline-2 focus-within:outline-accent', chosen === evaluator ? 'border-accent bg-accent-soft' : 'border-line hover:bg-sunken')}
                >
                  <input type="radio" name="evaluator" className="absolute inset-0 cursor-pointer opacity-0" value={evaluator} checked={chosen === evaluator} onChange={() => onChoose(evaluator)} aria-label={CARDS[evaluator]?.name ?? evaluator} />
                  <span className="font-medium break-words">{CARDS[evaluator]?.name ?? evaluator}</span>
                  <span className="text-xs text-muted">{CARDS[evaluator]?.about ?? description}</span>
                </label>
              ))}
          </div>
        </div>
      ))}
    </fieldset>
  )
}
