import { Button, Dialog, OneTimeSecret } from '@/ui'

/** Shows an invitation link once. */
export function InviteLink({ email, token, onClose }: { email: string; token: string; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title={`${email} is invited`} actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <OneTimeSecret title="Invitation link" secret={`${location.origin}/console/invite/${token}`}>
        Send it to them. Within seven days they join with this address, by their account or a new one. It is shown only now; a new link replaces it.
      </OneTimeSecret>
    </Dialog>
  )
}
