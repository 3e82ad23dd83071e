/** Markdown renderer, lazy-loaded. Raw HTML is shown as text, images are not loaded, links open in a new tab. */
import ReactMarkdown, { type Components } from 'react-markdown'
import remarkGfm from 'remark-gfm'

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer noopener" className="text-accent underline">
      {children}
    </a>
  ),
  // It scrolls, so the keyboard has to reach it.
  pre: ({ children }) => <pre tabIndex={0}>{children}</pre>,
  img: ({ alt, src }) => <span className="text-muted">[{alt || String(src ?? 'picture')}]</span>,
}

export default function Markdown({ text }: { text: string }) {
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={[remarkGfm]} components={COMPONENTS}>
        {text}
      </ReactMarkdown>
    </div>
  )
}
