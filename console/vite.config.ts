import tailwindcss from '@tailwindcss/vite'
import { defineConfig } from 'vitest/config'

// While developing, `GATEWAY_URL` is where a gateway listens; the built console is served by the gateway itself.
const gateway = process.env['GATEWAY_URL'] ?? 'http://127.0.0.1:8080'

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
        // Icons that several pages share would be a file each, and a request each.
        codeSplitting: { groups: [{ name: 'icons', test: /lucide-react/, minShareCount: 2 }] },
      },
      // Libraries mark files for server rendering, which is not done here.
      onLog: (level, log, handle) => log.code === 'MODULE_LEVEL_DIRECTIVE' || handle(level, log),
    },
  },
  server: { proxy: { '^/(api|v1|healthz)': gateway } },
  test: { environment: 'node', include: ['src/**/*.test.ts'] },
})
