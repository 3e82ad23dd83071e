import { Button, Dialog, SecretOnce } from '@/ui'

/** The link that lets somebody in, this once. */
export function InviteLink({ email, token, onClose }: { email: string; token: string; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title={`${email} is invited`} actions={<Button kind="primary" onClick={onClose}>Done</Button>}>
      <SecretOnce title="Invitation link" secret={`${location.origin}/console/invite/${token}`}>
        Send it to them: whoever opens it within seven days joins with this address. It is shown only now; a new link replaces it.
      </SecretOnce>
    </Dialog>
  )
}
