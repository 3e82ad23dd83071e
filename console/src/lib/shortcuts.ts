/** Keys that do something: one listener, the newest binding first, never while somebody types. */
import { useEffect, useRef } from 'react'

/** `'j'`, `'?'`, `'Escape'`, `'mod+k'`, or two keys one after the other: `'g l'`. */
export type Bindings = Record<string, (event: KeyboardEvent) => void>

interface Layer {
  bindings: Bindings
}

const layers: Layer[] = []
const SEQUENCE_MS = 900
let leader: { key: string; at: number } | null = null

export function useShortcuts(bindings: Bindings, active = true): void {
  const layer = useRef<Layer>({ bindings })
  useEffect(() => {
    layer.current.bindings = bindings
  })
  useEffect(() => {
    if (!active) return
    const mine = layer.current
    layers.push(mine)
    return () => {
      layers.splice(layers.indexOf(mine), 1)
    }
  }, [active])
}

export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true
  return target instanceof HTMLInputElement && !['checkbox', 'radio', 'button', 'range'].includes(target.type)
}

/** Space and Enter belong to what has the focus, where that does something with them. */
function isPressed(event: KeyboardEvent): boolean {
  const pressing = event.key === ' ' || event.key === 'Enter'
  return pressing && event.target instanceof Element && event.target.closest('button, a, summary, tr, [role=tab], [role=slider], [role=separator], [role=checkbox]') !== null
}

function find(name: string): ((event: KeyboardEvent) => void) | undefined {
  for (let at = layers.length - 1; at >= 0; at--) {
    const found = layers[at]?.bindings[name]
    if (found) return found
  }
  return undefined
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return
  const mod = event.metaKey || event.ctrlKey
  if (!mod && event.altKey) return
  // A dialog over the page has the keyboard to itself.
  const modal = document.querySelector('[role=dialog][data-modal=true], [role=alertdialog]')
  if (modal && !modal.contains(event.target as Node | null)) return
  if (modal && !mod) return
  if (!mod && (isTyping(event.target) || isPressed(event))) return
  const pair = leader && event.timeStamp - leader.at < SEQUENCE_MS ? `${leader.key} ${event.key}` : null
  leader = null
  const action = (pair && find(pair)) || find(mod ? `mod+${event.key.toLowerCase()}` : event.key)
  if (action) {
    event.preventDefault()
    action(event)
  } else if (!mod && event.key.length === 1) {
    leader = { key: event.key, at: event.timeStamp }
  }
}

globalThis.addEventListener?.('keydown', onKey)

export const MOD = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? '') ? '⌘' : 'Ctrl '
