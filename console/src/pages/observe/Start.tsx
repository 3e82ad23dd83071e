import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { useFirstKey } from '@/api/firstKey'
import { Page } from '@/ui'
import type { LogTab } from './log/tabs'
import { WithLogDrawer } from './log/LogDrawer'
import { FirstRequest } from './start/FirstRequest'
import { NextSteps } from './start/NextSteps'
import { Step } from './start/Step'
import { TryIt } from './start/TryIt'
import { useFirstRequest } from './start/useFirstRequest'
import { YourKey } from './start/YourKey'

/** Onboarding: API key, snippet and first request. */
export function Start() {
  const key = useFirstKey()
  const [stored, setStored] = useState(false)
  const [copied, setCopied] = useState(false)
  const [closed, setClosed] = useState(false)
  const [tab, setTab] = useState<LogTab>('conversation')
  const firstRequest = useFirstRequest(key)
  const row = firstRequest.row
  return (
    <WithLogDrawer logId={closed ? undefined : row?.id} tab={tab} onTab={setTab} onClose={() => setClosed(true)}>
      <div className="overflow-y-auto">
        <Page
          title="First steps"
          about="Send one request through the gateway and watch it arrive. You need no provider account."
          actions={
            <Link to="/" className="btn">
              Go to the overview
            </Link>
          }
        >
          <ol className="mx-auto flex w-full max-w-[860px] flex-col gap-4">
            <Step number={1} title="Your key" done={stored || copied || row !== null}>
              <YourKey stored={stored} onStored={() => setStored(true)} />
            </Step>
            <Step number={2} title="Send a request" done={copied || row !== null}>
              <TryIt rawKey={key} onCopied={() => setCopied(true)} />
            </Step>
            <Step number={3} title="Waiting for your request" done={row !== null}>
              <FirstRequest request={firstRequest} onOpen={() => setClosed(false)} />
            </Step>
            <Step number={4} title="What next" done={false}>
              <NextSteps />
            </Step>
          </ol>
        </Page>
      </div>
    </WithLogDrawer>
  )
}
