// Makes the built site fit for the gateway: scripts and styles in files, because the content security policy allows no
// others; every link and anchor checked; every text file compressed. `dist/` is what the gateway embeds.
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { promisify } from 'node:util'
import { brotliCompress, constants } from 'node:zlib'

// Runs on threads, so that all cores compress.
const compress = promisify(brotliCompress)
const BASE = '/console/docs/'
const LIMIT_KB = 1200
const site = resolve(import.meta.dirname, '..')
const out = join(site, '.vitepress/out')
const dist = join(site, 'dist')
const problems = []

const files = new Map()
for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || entry.name.startsWith('.') || entry.name === 'hashmap.json') continue
  const path = join(entry.parentPath, entry.name)
  files.set(relative(out, path), readFileSync(path))
}
for (const [name, bytes] of [...files].filter(([name]) => name.endsWith('.html'))) {
  const page = withoutInlineStyles(withoutInlineScripts(bytes.toString('utf8')))
  files.set(name, Buffer.from(page))
  for (const [found] of page.matchAll(/\sstyle="[^"]*"|<style[\s>]|\son[a-z]+="/g)) problems.push(`${name}: ${found.trim()} is forbidden by the content security policy`)
}
checkLinks()

// The whole site or none: a build that is stopped leaves the old one.
const unfinished = `${dist}.tmp`
rmSync(unfinished, { recursive: true, force: true })
let [raw, packed] = [0, 0]
await Promise.all(
  [...files].map(async ([name, bytes]) => {
    const isText = /\.(html|js|css|svg|json)$/.test(name)
    const params = { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length }
    const content = isText ? await compress(bytes, { params }) : bytes
    const path = join(unfinished, isText ? `${name}.br` : name)
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, content)
    raw += bytes.length
    packed += content.length
  }),
)
if (packed / 1024 > LIMIT_KB) problems.push(`the site is ${(packed / 1024).toFixed(0)} KB, the limit is ${LIMIT_KB} KB`)
console.log(`docs: ${[...files.keys()].filter((name) => name.endsWith('.html')).length} pages, ${raw} bytes, ${packed} bytes compressed`)
if (problems.length > 0) {
  console.error(problems.slice(0, 50).join('\n'))
  process.exit(1)
}
rmSync(dist, { recursive: true, force: true })
renameSync(unfinished, dist)

/** Moves the text of scripts into files, named by their content. */
function withoutInlineScripts(page) {
  return page.replace(/<script((?:(?! src=)[^>])*)>([\s\S]+?)<\/script>/g, (_, attributes, code) => {
    const name = `assets/inline.${createHash('sha256').update(code).digest('hex').slice(0, 12)}.js`
    files.set(name, Buffer.from(code))
    return `<script${attributes} src="${BASE}${name}"></script>`
  })
}

/** Removes the attributes that the theme writes; `style.css` and scripts that run later set the same. */
function withoutInlineStyles(page) {
  return page.replace(/ style="(|--vp-vh:0px;)"/g, '')
}

/** Every link inside the site must lead to a page of it, and to an element with that id. */
function checkLinks() {
  const ids = new Map()
  for (const [name, bytes] of files) {
    if (!name.endsWith('.html')) continue
    ids.set(name, new Set([...bytes.toString('utf8').matchAll(/\sid="([^"]+)"/g)].map(([, id]) => decode(id))))
  }
  for (const [name, bytes] of files) {
    if (!name.endsWith('.html') || name === '404.html') continue
    for (const [, kind, found] of bytes.toString('utf8').matchAll(/\s(href|src)="([^"]+)"/g)) {
      const url = new URL(decode(found), `http://site${BASE}${name.replace(/(index)?\.html$/, '')}`)
      if (url.host !== 'site') continue
      if (!url.pathname.startsWith(BASE)) {
        if (!url.pathname.startsWith('/console/')) problems.push(`${name}: ${kind} ${found} leaves the site`)
        continue
      }
      const path = decodeURIComponent(url.pathname.slice(BASE.length))
      const target = [path, `${path}.html`, `${path}index.html`].find((candidate) => files.has(candidate))
      if (target === undefined) problems.push(`${name}: ${kind} ${found} leads nowhere`)
      else if (url.hash && !ids.get(target)?.has(decodeURIComponent(url.hash.slice(1)))) problems.push(`${name}: ${found} has no such heading`)
    }
  }
}

function decode(text) {
  return text.replaceAll('&quot;', '"').replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&#39;', "'").replaceAll('&amp;', '&')
}
