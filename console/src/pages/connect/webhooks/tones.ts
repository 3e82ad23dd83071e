import type { Schemas } from '@/api/client'
import type { Tone } from '@/ui'

export const DELIVERY_TONE: Record<Schemas['DeliveryStatus'], Tone> = { pending: 'warn', delivered: 'ok', failed: 'err' }
