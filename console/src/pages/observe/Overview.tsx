import { Page } from '@/ui'
export function Overview() {
  return <Page title="Overview">…</Page>
}
