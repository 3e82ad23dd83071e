/** SKILL.md editor with line numbers and diagnostics. Lazy-loaded. */
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands'
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, setDiagnostics, type Diagnostic } from '@codemirror/lint'
import { Annotation, EditorState } from '@codemirror/state'
import { EditorView, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { getNonce } from 'get-nonce'
import { useEffect, useEffectEvent, useRef } from 'react'
import type { SourceProblem } from '@/lib/frontmatter'

interface EditorProps {
  label: string
  value: string
  problems: readonly SourceProblem[]
  readOnly?: boolean
  autoFocus?: boolean
  onChange(value: string): void
}

/** Marks programmatic changes, as opposed to user input. */
const programmaticChange = Annotation.define<boolean>()

interface Place {
  fences: number
  code: boolean
}

/** Minimal highlighting of YAML frontmatter and Markdown. */
const language = StreamLanguage.define<Place>({
  startState: () => ({ fences: 0, code: false }),
  token(stream, state) {
    if (stream.sol() && /^---\s*$/.test(stream.string)) {
      state.fences += 1
      stream.skipToEnd()
      return 'meta'
    }
    if (state.fences === 1) {
      if (stream.sol() && stream.match(/^[\w-]+(?=:)/)) return 'keyword'
      stream.skipToEnd()
      return 'string'
    }
    if (stream.sol() && stream.match(/^\s*```/)) {
      state.code = !state.code
      stream.skipToEnd()
      return 'meta'
    }
    if (state.code || (stream.sol() && stream.match(/^ {4}/))) {
      stream.skipToEnd()
      return 'monospace'
    }
    if (stream.sol() && stream.match(/^#{1,6} .*/)) return 'heading'
    if (stream.match(/^`[^`]*`/)) return 'monospace'
    stream.next()
    return null
  },
})

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--accent)' },
  { tag: tags.heading, fontWeight: '600' },
  { tag: tags.meta, color: 'var(--muted)' },
  { tag: tags.monospace, color: 'var(--ok)' },
])

const theme = EditorView.theme({
  '&': { backgroundColor: 'var(--surface)', color: 'var(--fg)', fontSize: '12px', minHeight: '320px', maxHeight: '64vh' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '1px' },
  '.cm-scroller': { fontFamily: 'var(--font-mono)', lineHeight: '20px', minHeight: '320px' },
  '.cm-content': { caretColor: 'var(--fg)' },
  '.cm-cursor': { borderLeftColor: 'var(--fg)' },
  '.cm-gutters': { backgroundColor: 'var(--surface)', color: 'var(--muted)', border: 'none' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', color: 'var(--fg)', border: '1px solid var(--line)' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--err)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { backgroundColor: 'color-mix(in oklch, var(--accent) 28%, transparent) !important' },
})

export default function Editor({ label, value, problems, readOnly = false, autoFocus = false, onChange }: EditorProps) {
  const box = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView | null>(null)
  const changed = useEffectEvent((next: string) => onChange(next))
  const first = useEffectEvent(() => value)
  useEffect(() => {
    if (!box.current) return
    const nonce = getNonce()
    const editor = new EditorView({
      parent: box.current,
      state: EditorState.create({
        doc: first(),
        extensions: [
          lineNumbers(),
          history(),
          lintGutter(),
          language,
          syntaxHighlighting(colors),
          theme,
          EditorView.lineWrapping,
          EditorState.readOnly.of(readOnly),
          EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'true', tabindex: '0' }),
          keymap.of([...defaultKeymap, ...historyKeymap]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged && !update.transactions.some((one) => one.annotation(programmaticChange))) changed(update.state.doc.toString())
          }),
          // CodeMirror injects styles, which the content security policy allows only with this nonce.
          ...(nonce ? [EditorView.cspNonce.of(nonce)] : []),
        ],
      }),
    })
    view.current = editor
    if (autoFocus) editor.focus()
    return () => editor.destroy()
  }, [label, readOnly, autoFocus])

  // The value changed from outside: a restored version or a discarded draft.
  useEffect(() => {
    const editor = view.current
    if (!editor || editor.state.doc.toString() === value) return
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value }, annotations: programmaticChange.of(true) })
  }, [value])
  useEffect(() => {
    const editor = view.current
    if (editor) editor.dispatch(setDiagnostics(editor.state, problems.map((problem) => diagnostic(editor.state, problem))))
  }, [problems, value])
  return <div ref={box} className="overflow-hidden rounded-sm border border-line-strong" />
}

function diagnostic(state: EditorState, problem: SourceProblem): Diagnostic {
  const { from, to } = state.doc.line(Math.min(state.doc.lines, Math.max(1, problem.line)))
  return { from, to, severity: 'error', message: problem.message }
}
