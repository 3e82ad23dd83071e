/** A session as one conversation: each request sends all that was said before again, and only what is new is shown. */
import { plainText, type Answer, type Message } from './conversation'

export interface Exchange {
  asked: readonly Message[] | null
  answer: Answer | null
}

export interface Turn {
  /** What this request said for the first time. */
  said: Message[]
  answered: Message[]
}

export function newTurns(exchanges: readonly Exchange[]): Turn[] {
  let known: string[] = []
  return exchanges.map(({ asked, answer }) => {
    const messages = asked ?? []
    const names = messages.map(nameOf)
    const same = commonStart(known, names)
    const answered = answer?.messages ?? []
    known = [...names, ...answered.map(nameOf)]
    return { said: messages.slice(same), answered }
  })
}

function commonStart(before: readonly string[], after: readonly string[]): number {
  let at = 0
  while (at < before.length && at < after.length && before[at] === after[at]) at++
  return at
}

/** Two messages are the same when they say the same, whatever a provider wrapped around it. */
function nameOf(message: Message): string {
  return `${message.role} ${plainText(message) || JSON.stringify(message.parts)}`
}
