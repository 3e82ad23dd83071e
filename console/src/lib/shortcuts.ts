/** Keyboard shortcuts: one global listener, latest binding first, inactive while the user types. */
import { useEffect, useRef } from 'react'

/** `'j'`, `'?'`, `'Escape'`, `'mod+k'`, or a two-key sequence: `'g l'`. */
export type Bindings = Record<string, (event: KeyboardEvent) => void>

interface Layer {
  bindings: Bindings
}

const layers: Layer[] = []
const SEQUENCE_TIMEOUT_MS = 900
let pendingKey: { key: string; at: number } | null = null

export function useShortcuts(bindings: Bindings, active = true): void {
  const layer = useRef<Layer>({ bindings })
  useEffect(() => {
    layer.current.bindings = bindings
  })
  useEffect(() => {
    if (!active) return
    const registered = layer.current
    layers.push(registered)
    return () => {
      layers.splice(layers.indexOf(registered), 1)
    }
  }, [active])
}

export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true
  return target instanceof HTMLInputElement && !['checkbox', 'radio', 'button', 'range'].includes(target.type)
}

/** Space and Enter activate the focused control, so shortcuts must not handle them. */
function activatesFocusedElement(event: KeyboardEvent): boolean {
  const isActivationKey = event.key === ' ' || event.key === 'Enter'
  return isActivationKey && event.target instanceof Element && event.target.closest('button, a, summary, tr, [role=tab], [role=slider], [role=separator], [role=checkbox]') !== null
}

function findBinding(name: string): ((event: KeyboardEvent) => void) | undefined {
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
  // A modal dialog captures the keyboard.
  const modal = document.querySelector('[role=dialog][data-modal=true], [role=alertdialog]')
  if (modal && !modal.contains(event.target as Node | null)) return
  if (modal && !mod) return
  if (!mod && (isTyping(event.target) || activatesFocusedElement(event))) return
  const sequence = pendingKey && event.timeStamp - pendingKey.at < SEQUENCE_TIMEOUT_MS ? `${pendingKey.key} ${event.key}` : null
  pendingKey = null
  const action = (sequence && findBinding(sequence)) || findBinding(mod ? `mod+${event.key.toLowerCase()}` : event.key)
  if (action) {
    event.preventDefault()
    action(event)
  } else if (!mod && event.key.length === 1) {
    pendingKey = { key: event.key, at: event.timeStamp }
  }
}

globalThis.addEventListener?.('keydown', onKey)

export const MOD_KEY_LABEL = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? '') ? '⌘' : 'Ctrl '
