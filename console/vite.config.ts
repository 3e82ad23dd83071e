import tailwindcss from '@tailwindcss/vite'
import { defineConfig } from 'vitest/config'

// In development, requests are proxied to `GATEWAY_URL`; in production the gateway serves the built console.
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
        // Without grouping, each shared icon would be a separate chunk and request.
        codeSplitting: { groups: [{ name: 'icons', test: /lucide-react/, minShareCount: 2 }] },
      },
      // Ignore "use client" directives; the console has no server rendering.
      onLog: (level, log, handle) => log.code === 'MODULE_LEVEL_DIRECTIVE' || handle(level, log),
    },
  },
  server: { proxy: { '^/(api|v1|healthz)': gateway } },
  test: { environment: 'node', include: ['src/**/*.test.ts'] },
})
