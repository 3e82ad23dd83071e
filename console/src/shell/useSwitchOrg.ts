import { useNavigate } from '@tanstack/react-router'
import { switchOrg } from '@/api/auth'
import { toastError } from '@/ui'

/** Switches the organization and opens its overview. */
export function useSwitchOrg(): (orgId: string) => Promise<void> {
  const navigate = useNavigate()
  return async (orgId) => {
    try {
      await switchOrg(orgId)
      await navigate({ to: '/' })
    } catch (error) {
      toastError(error)
    }
  }
}
