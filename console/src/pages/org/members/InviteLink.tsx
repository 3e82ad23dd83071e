import { Button, Dialog, OneTimeSecret } from '@/ui'

/** Shows an invitation link once. */
export function InviteLink({ email, token, onClose }: { email: string; token: string; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title={`${email} is invited`} actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <OneTimeSecret title="Invitation link" secret={`${location.origin}/console/invite/${token}`}>
        Send it to them. It is valid for seven days, for an existing account or a new one. Copy it now, you won’t see it again; a new link replaces it.
      </OneTimeSecret>
    </Dialog>
  )
}
