/** Shows a session as one conversation. Each request repeats the history, so only its new messages are kept. */
import { plainText, type ModelResponse, type Message } from './conversation'

export interface LoggedExchange {
  request: readonly Message[] | null
  response: ModelResponse | null
}

export interface ConversationTurn {
  /** Messages that earlier requests did not contain. */
  newMessages: Message[]
  responseMessages: Message[]
}

export function conversationTurns(exchanges: readonly LoggedExchange[]): ConversationTurn[] {
  let previousKeys: string[] = []
  return exchanges.map(({ request, response }) => {
    const messages = request ?? []
    const keys = messages.map(messageKey)
    const prefixLength = commonPrefixLength(previousKeys, keys)
    const responseMessages = response?.messages ?? []
    previousKeys = [...keys, ...responseMessages.map(messageKey)]
    return { newMessages: messages.slice(prefixLength), responseMessages }
  })
}

function commonPrefixLength(before: readonly string[], after: readonly string[]): number {
  let at = 0
  while (at < before.length && at < after.length && before[at] === after[at]) at++
  return at
}

/** Identity of a message by role and text, independent of provider-specific fields. */
function messageKey(message: Message): string {
  return `${message.role} ${plainText(message) || JSON.stringify(message.parts)}`
}
