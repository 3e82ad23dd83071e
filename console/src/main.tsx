import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { setNonce } from 'get-nonce'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { queryClient } from './api/query'
import './app.css'
import { router } from './router'

// Scroll locking under dialogs writes a <style>; the content security policy lets it pass with this nonce only.
const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce
if (nonce) setNonce(nonce)

const root = document.getElementById('root')
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  )
}

// After an upgrade of the gateway an old tab asks for files that are gone: it starts anew, once.
window.addEventListener('vite:preloadError', (event) => {
  const last = Number(localStorage.getItem('console.reloaded') ?? 0)
  if (Date.now() - last < 30_000) return
  event.preventDefault()
  localStorage.setItem('console.reloaded', String(Date.now()))
  location.reload()
})
