import { client, unwrap, type Schemas } from '@/api/client'
import { useMe } from '@/api/me'
import { invalidate } from '@/api/query'
import { measureText } from '@/lib/alerts'
import { plural } from '@/lib/format'
import { toast, toastError } from '@/ui'

type Alert = Schemas['Alert']

/** Test and mute, with their result as a message. */
export function useAlertActions() {
  const { orgId } = useMe()
  const params = (alert: Alert) => ({ path: { orgId, alertId: alert.id } })
  const refresh = () => invalidate('/api/v1/orgs/{orgId}/alerts')
  const test = async (alert: Alert): Promise<void> => {
    try {
      const { value, requests, would_fire } = await unwrap(client.POST('/api/v1/orgs/{orgId}/alerts/{alertId}/test', { params: params(alert) }))
      await refresh()
      const measured = value === null ? 'nothing to measure' : measureText(alert.measure, value)
      toast(`Test sent. Now: ${measured} in ${plural(requests, 'request')}; the alert would ${would_fire ? 'fire' : 'not fire'}`)
    } catch (error) {
      toastError(error)
    }
  }
  const mute = async (alert: Alert, minutes: number): Promise<void> => {
    try {
      await unwrap(client.POST('/api/v1/orgs/{orgId}/alerts/{alertId}/mute', { params: params(alert), body: { minutes } }))
      await refresh()
      toast(minutes === 0 ? `${alert.name} is no longer muted` : `${alert.name} is muted for ${plural(minutes / 60, 'hour')}`)
    } catch (error) {
      toastError(error)
    }
  }
  return { test: (alert: Alert) => void test(alert), mute: (alert: Alert, minutes: number) => void mute(alert, minutes) }
}
