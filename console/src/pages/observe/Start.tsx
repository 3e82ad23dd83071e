import { Page } from '@/ui'
export function Start() {
  return <Page title="First steps">…</Page>
}
