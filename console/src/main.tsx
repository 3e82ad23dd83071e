import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { setNonce } from 'get-nonce'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import { queryClient } from './api/query'
import './app.css'
import { router } from './router'

// Scroll locking of dialogs injects a <style>, which the content security policy allows only with this nonce.
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

// After a gateway upgrade an old tab requests chunks that no longer exist: reload once. Offline, what was loaded stays.
window.addEventListener('vite:preloadError', (event) => {
  const last = Number(localStorage.getItem('console.reloaded') ?? 0)
  if (!navigator.onLine || Date.now() - last < 30_000) return
  event.preventDefault()
  localStorage.setItem('console.reloaded', String(Date.now()))
  location.reload()
})
