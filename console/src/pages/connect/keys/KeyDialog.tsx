/** Dialogs of the key actions. A raw key is kept in memory here and nowhere else. */
import type { Schemas } from '@/api/client'
import { KeyForm } from './KeyForm'
import { RevokeKey } from './RevokeKey'
import { RotateKey } from './RotateKey'

type Props = { onClose: () => void } & ({ kind: 'create' } | { kind: 'edit' | 'rotate' | 'revoke'; apiKey: Schemas['Key'] })

export function KeyDialog(props: Props) {
  const { onClose } = props
  switch (props.kind) {
    case 'create':
      return <KeyForm apiKey={null} onClose={onClose} />
    case 'edit':
      return <KeyForm apiKey={props.apiKey} onClose={onClose} />
    case 'rotate':
      return <RotateKey apiKey={props.apiKey} onClose={onClose} />
    case 'revoke':
      return <RevokeKey apiKey={props.apiKey} onClose={onClose} />
  }
}
