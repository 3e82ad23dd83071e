// Collects the pages of the site in `pages/`: docs/, the README as quick start, and the changelog. Links between them
// are adapted; a link to a file that is no page becomes the name of the file. What the README says to contributors is
// left out.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { outsideCode } from './markdown.mjs'

const site = resolve(import.meta.dirname, '..')
const repository = resolve(site, '..')
const docs = join(repository, 'docs')
const pages = join(site, 'pages')
/** Pages that are files elsewhere in the repository. */
const ELSEWHERE = new Map([
  [join(repository, 'README.md'), 'quick-start.md'],
  [join(repository, 'CHANGELOG.md'), 'changelog.md'],
])
/** Lines that say how to work on the gateway, and under which licence it is. */
const FOR_CONTRIBUTORS = /^.*\]\((?:CONTRIBUTING\.md|LICENSE)\).*\n/gm

if (process.argv[1] === fileURLToPath(import.meta.url)) stage()

export function stage() {
  rmSync(pages, { recursive: true, force: true })
  cpSync(join(site, 'index.md'), join(pages, 'index.md'))
  for (const entry of readdirSync(docs, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue
    const source = join(entry.parentPath, entry.name)
    put(source, relative(docs, source))
  }
  for (const [source, name] of ELSEWHERE) put(source, name)
}

/** Entries of the navigation for the generated pages of the providers. */
export const providerPages = () => listed('providers', (title) => title)

/** Entries of the navigation for the generated pages of the API. */
export const apiPages = () => listed('api', (title) => title.replace(/^API: /, ''))

/** A group for the pages that the navigation does not name, so that none is missing. */
export function otherPages(navigation) {
  const others = listed('.', (title) => title).filter(({ link }) => !navigation.includes(`"${link}"`))
  return others.length > 0 ? [{ text: 'More', items: others }] : []
}

function listed(directory, shorten) {
  const path = join(docs, directory)
  const names = existsSync(path) ? readdirSync(path).filter((name) => name.endsWith('.md') && name !== 'index.md') : []
  return names.sort().map((name) => {
    const title = /^# (.+)$/m.exec(readFileSync(join(path, name), 'utf8'))?.[1] ?? name
    return { text: shorten(title), link: `/${join(directory, name.slice(0, -3))}` }
  })
}

function put(source, name) {
  const target = join(pages, name)
  mkdirSync(dirname(target), { recursive: true })
  if (!name.endsWith('.md')) return cpSync(source, target)
  let text = readFileSync(source, 'utf8')
  if (name === 'quick-start.md') text = text.replace(/^# .+$/m, '# Quick start').replace(FOR_CONTRIBUTORS, '')
  writeFileSync(target, outsideCode(text, (piece) => adapt(piece.replace(/<!--[\s\S]*?-->\n*/g, ''), source, target)))
}

/** Rewrites the relative links of a piece of text. */
function adapt(text, source, target) {
  return text.replace(/(!?)\[((?:[^\][]|\[[^\]]*\])*)\]\(([^)\s]+)\)/g, (whole, image, label, link) => {
    if (/^([a-z]+:|#|\/)/.test(link)) return whole
    const [path, anchor] = link.split('#')
    const file = resolve(dirname(source), path)
    const inside = ELSEWHERE.get(file) ?? (file.startsWith(`${docs}/`) ? relative(docs, file) : null)
    if (inside === null) return image ? '' : `${label} (\`${relative(repository, file)}\`)`
    const found = relative(dirname(target), join(pages, inside))
    return `${image}[${label}](${found.startsWith('.') ? found : `./${found}`}${anchor ? `#${anchor}` : ''})`
  })
}
