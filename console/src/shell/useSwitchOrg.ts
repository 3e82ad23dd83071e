import { useNavigate } from '@tanstack/react-router'
import { switchOrg } from '@/api/auth'
import { toastError } from '@/ui'

/** Goes to another organization, and to its overview: what was on the screen belongs to the one before. */
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
