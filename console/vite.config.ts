import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import tailwindcss from '@tailwindcss/vite'
import { defineConfig } from 'vitest/config'

// In development, requests are proxied to `GATEWAY_URL`; in production the gateway serves the built console.
const gateway = process.env['GATEWAY_URL'] ?? 'http://127.0.0.1:8080'

/** Files of the icons of the shell, the UI kit, charts and the overview, which every visit loads. */
const iconIndex = readFileSync(new URL('./node_modules/lucide-react/dist/esm/lucide-react.mjs', import.meta.url), 'utf8')
const firstIcons = new Set(
  ['shell', 'ui', 'charts', 'pages/observe/overview'].flatMap((directory) => {
    const path = new URL(`./src/${directory}/`, import.meta.url).pathname
    const names = readdirSync(path).flatMap((file) => /import \{([^}]*)\} from 'lucide-react'/.exec(readFileSync(join(path, file), 'utf8'))?.[1]?.split(',') ?? [])
    return names.map((name) => new RegExp(`default as ${name.trim()}\\b.* from './icons/(.*)'`).exec(iconIndex)?.[1])
  }),
)

/** Parts of the UI kit that the shell and the overview use. Other pages load the rest. */
const shellParts = /src\/ui\/(Badge|Button|DateRange|Dialog|Empty|ErrorPanel|Field|Menu|Page|Skeleton|Stat|Toast)\.tsx$/

export default defineConfig({
  base: '/console/',
  plugins: [tailwindcss()],
  resolve: { alias: { '@': new URL('./src', import.meta.url).pathname } },
  html: { cspNonce: '__CSP_NONCE__' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    manifest: true,
    rolldownOptions: {
      output: {
        // The first script lists the names of all chunks; a shorter hash keeps it small.
        chunkFileNames: 'assets/[name]-[hash:7].js',
        // Without grouping, each shared icon would be a separate chunk and request. Icons of later pages are apart.
        codeSplitting: {
          // A group has only its own modules: what the login page needs of them stays outside.
          includeDependenciesRecursively: false,
          groups: [
            { name: 'icons', test: (id) => id.includes('lucide-react') && (!id.includes('/icons/') || firstIcons.has(basename(id))), priority: 1 },
            { name: 'page-icons', test: /lucide-react/, minShareCount: 2 },
            // The part of the UI kit that the shell uses: one file compresses better than twelve.
            { name: 'ui', test: (id) => shellParts.test(id) || (/node_modules\/(@radix-ui|radix-ui|@floating-ui|aria-hidden|react-remove-scroll|react-style-singleton|use-callback-ref|use-sidecar|tslib)/.test(id) && !/react-tabs/.test(id)) },
            // Modules of the first page that import nothing: one file compresses better than three.
            { name: 'charts', test: /src\/(lib\/series|charts\/(colors|scale))\.ts/ },
          ],
        },
      },
      // Ignore "use client" directives; the console has no server rendering.
      onLog: (level, log, handle) => log.code === 'MODULE_LEVEL_DIRECTIVE' || handle(level, log),
    },
  },
  server: { proxy: { '^/(api|v1|healthz)': gateway } },
  test: { environment: 'node', include: ['src/**/*.test.ts'] },
})
