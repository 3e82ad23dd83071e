// The documentation site. `scripts/stage.mjs` collects the pages in `pages/`; `scripts/finish.mjs` makes the output fit
// the content security policy of the gateway, checks its links, and compresses it for the binary.
import { createCssVariablesTheme } from 'shiki'
import { defineConfig } from 'vitepress'
import { slugify } from '../scripts/markdown.mjs'
import { apiPages, otherPages, providerPages } from '../scripts/stage.mjs'

const page = (text, name) => ({ text, link: `/${name}` })

const sidebar = [
  { text: 'Start', items: [page('Quick start', 'quick-start'), page('Concepts', 'concepts'), page('The web console', 'console')] },
  {
    text: 'Clients',
    items: [
      page('Standard clients', 'sdk'),
      page('curl', 'clients/curl'),
      page('Python', 'clients/python'),
      page('TypeScript', 'clients/typescript'),
      page('LangChain', 'clients/langchain'),
      page('Vercel AI SDK', 'clients/vercel-ai-sdk'),
      page('Claude Code', 'clients/claude-code'),
      page('Codex', 'clients/codex'),
      page('Cursor', 'clients/cursor'),
      page('Open WebUI', 'clients/open-webui'),
    ],
  },
  {
    text: 'Requests',
    items: [page('The proxy', 'proxy'), page('Fallback and routing', 'routing'), page('Named models', 'models'), page('Translation', 'translation'), page('Caching', 'caching')],
  },
  {
    text: 'Control',
    items: [page('Budgets', 'budgets'), page('Limits', 'limits'), page('People, sessions, keys', 'access'), page('Logs and usage', 'logs'), page('Queries', 'query'), page('Alerts', 'alerts'), page('Audit log', 'audit'), page('Webhooks', 'webhooks'), page('Exports and OTLP', 'exports')],
  },
  {
    text: 'Quality',
    items: [page('Prompts', 'prompts'), page('Playground', 'playground'), page('Datasets', 'datasets'), page('Evals', 'evals'), page('Replay', 'replay'), page('Skills', 'skills')],
  },
  {
    text: 'Agents',
    items: [page('MCP servers', 'mcp'), page('Connecting agents', 'agents')],
  },
  { ...page('Providers', 'providers/'), collapsed: true, items: providerPages() },
  {
    text: 'Switch to it',
    items: [
      page('From another gateway', 'switching'),
      page('LiteLLM', 'switching/litellm'),
      page('Portkey', 'switching/portkey'),
      page('OpenRouter', 'switching/openrouter'),
      page('Helicone', 'switching/helicone'),
      page('Bifrost', 'switching/bifrost'),
    ],
  },
  { text: 'Run it', items: [page('Command line', 'cli'), page('Configuration', 'configuration'), page('Operations', 'operations'), page('Versions and upgrades', 'upgrading'), page('Security', 'security')] },
  {
    text: 'Reference',
    items: [page('Errors', 'errors'), { ...page('API', 'api/'), collapsed: true, items: apiPages() }, page('Changelog', 'changelog')],
  },
]
sidebar.push(...otherPages(JSON.stringify(sidebar)))

export default defineConfig({
  base: '/console/docs/',
  srcDir: 'pages',
  outDir: '.vitepress/out',
  cacheDir: '.vitepress/cache',
  cleanUrls: true,
  // Instead of the default, a style attribute.
  contentProps: { class: 'page-content' },
  lang: 'en',
  title: 'Gateway',
  titleTemplate: ':title · Gateway documentation',
  description: 'Documentation of the AI gateway',
  // The animation of the switch would need an inline style.
  appearance: { disableTransition: false },
  head: [['link', { rel: 'icon', href: '/console/favicon.svg', type: 'image/svg+xml' }]],
  // The console is another application: its pages are no part of the site.
  ignoreDeadLinks: [/^\/console\//],
  markdown: {
    // The pages are plain Markdown, also for readers on a forge. Tags in their text are text.
    html: false,
    theme: createCssVariablesTheme({ name: 'css-variables', variablePrefix: '--shiki-' }),
    anchor: { slugify },
    config: plainMarkdown,
  },
  themeConfig: {
    siteTitle: 'Gateway docs',
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        detailedView: false,
        miniSearch: { searchOptions: { fuzzy: 0.15, prefix: true, boost: { title: 6, titles: 2, text: 1 } } },
      },
    },
    nav: [
      page('Quick start', 'quick-start'),
      page('Concepts', 'concepts'),
      page('Errors', 'errors'),
      page('API', 'api/'),
    ],
    sidebar,
    footer: { message: 'Part of the gateway that serves it: this documentation is of the same version.' },
  },
  vite: {
    plugins: [accessibleSearch()],
    build: { chunkSizeWarningLimit: 2000, assetsInlineLimit: 0 },
  },
})

/** Keeps Vue's syntax and inline styles out of the pages. */
function plainMarkdown(markdown) {
  const { fence } = markdown.renderer.rules
  // Templates of prompts contain `{{`, which Vue would evaluate.
  for (const rule of ['text', 'code_inline']) {
    const render = markdown.renderer.rules[rule]
    markdown.renderer.rules[rule] = (...given) => render(...given).replaceAll('{{', '&#123;&#123;')
  }
  // The policy allows no style attributes. The theme has a fixed set of colours, so they become classes.
  markdown.renderer.rules.fence = (...given) =>
    fence(...given)
      .replace(/ style="color:var\(--shiki-([a-z-]+)\)"/g, ' class="hl-$1"')
      .replace(/(<pre[^>]*?) style="[^"]*"/g, '$1')
      .replace(/ style="[^"]*"/g, '')
}

/** The search of the theme is a button around a form and links. Makes it a dialog with a list of links. */
function accessibleSearch() {
  const changes = {
    'VPNavBarSearchButton.vue': [
      [/ :aria-label="[^"]*"/, ''],
      ['class="DocSearch-Button-Keys"', 'class="DocSearch-Button-Keys" aria-hidden="true"'],
    ],
    'VPLocalSearchBox.vue': [
      ['role="button"\n', 'role="dialog"\n      aria-modal="true"\n'],
      [/:aria-owns="[^"]*"\s+aria-expanded="true"\s+aria-haspopup="listbox"\s+aria-labelledby="localsearch-label"/, 'aria-label="Search"'],
      [/:aria-activedescendant="[^"]*"\s+aria-autocomplete="both"\s+:aria-controls="[^"]*"\s+aria-labelledby="localsearch-label"/, 'aria-label="Search"'],
      [/:role="results\?\.length \? 'listbox' : undefined"\s+:aria-labelledby="[^"]*"/, 'aria-label="Results"'],
      [/:aria-selected="[^"]*"\s+role="option"/, ''],
      [/:aria-label="\[\.\.\.p\.titles, p\.title\]\.join\(' > '\)"/, ''],
      ['class="search-keyboard-shortcuts"', 'class="search-keyboard-shortcuts" aria-hidden="true"'],
    ],
  }
  return {
    name: 'accessible-search',
    enforce: 'pre',
    transform(code, id) {
      for (const [from, to] of changes[id.split('/').at(-1)] ?? []) {
        const changed = code.replace(from, to)
        if (changed === code) this.error(`the search of the theme has changed: ${from}`)
        code = changed
      }
      return code
    },
  }
}
