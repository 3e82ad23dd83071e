/** Marks the words of a search in texts. The words come from the nearest `SearchHits`. */
import { createContext, use, useMemo, type ReactNode } from 'react'

const MAX_MARKS = 500
const Words = createContext<readonly string[]>([])

export function SearchHits({ words, children }: { words: readonly string[]; children: ReactNode }) {
  return <Words value={words}>{children}</Words>
}

export function useSearchHits(): readonly string[] {
  return use(Words)
}

export function Marked({ text }: { text: string }) {
  const words = use(Words)
  const parts = useMemo(() => splitHits(text, words), [text, words])
  return <>{parts.map((part, at) => (at % 2 === 1 ? <mark key={at}>{part}</mark> : part))}</>
}

/** Splits a text into unmatched and matched parts in turn. Like the search, only whole words match, in any case. */
export function splitHits(text: string, words: readonly string[]): string[] {
  if (words.length === 0) return [text]
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})(?![\\p{L}\\p{N}])`, 'giu')
  const parts: string[] = []
  let from = 0
  for (const match of text.matchAll(pattern)) {
    if (parts.length >= 2 * MAX_MARKS) break
    parts.push(text.slice(from, match.index), match[0])
    from = match.index + match[0].length
  }
  return [...parts, text.slice(from)]
}
