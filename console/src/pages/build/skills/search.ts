/** Search parameters of the skill pages. */
import { integer, oneOf, text, type RawSearch } from '@/lib/search'

export const SORTS = ['recent', 'adoptions', 'score'] as const

export interface SkillsSearch {
  q?: string
}

export interface SkillSearch {
  view?: 'changes' | 'use'
  v?: number
  base?: number
}

export interface ShelfSearch {
  q?: string
  sort?: (typeof SORTS)[number]
  /** Id of the entry in the drawer. */
  skill?: string
}

export function readSkillsSearch(search: RawSearch): SkillsSearch {
  return { q: text(search['q']) }
}

export function readSkillSearch(search: RawSearch): SkillSearch {
  return { view: oneOf(search['view'], ['changes', 'use'] as const), v: integer(search['v']), base: integer(search['base']) }
}

export function readShelfSearch(search: RawSearch): ShelfSearch {
  return { q: text(search['q']), sort: oneOf(search['sort'], SORTS), skill: text(search['skill']) }
}
