// Rules for Markdown that the site shares with the forge: the same headings have the same anchors.

/** The anchor of a heading, as forges make it. */
export function slugify(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replace(/\s/g, '-')
}

/** Applies a function to the text outside of code blocks and code spans. */
export function outsideCode(text, change) {
  return text
    .split(/(^(?:```|~~~)[^\n]*\n[\s\S]*?^(?:```|~~~)[ \t]*$|`[^`\n]+`)/m)
    .map((piece, at) => (at % 2 === 1 ? piece : change(piece)))
    .join('')
}
