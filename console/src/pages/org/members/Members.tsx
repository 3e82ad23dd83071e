/** Members, their roles, and pending invitations. */
import { UserPlus } from 'lucide-react'
import { useState } from 'react'
import { api } from '@/api/client'
import { useMe } from '@/api/me'
import { cursorPaging } from '@/api/paging'
import { Button, ErrorPanel, Page, Pager, Section, SkeletonRows } from '@/ui'
import { Invitations } from './Invitations'
import { InviteForm } from './InviteForm'
import { MemberTable } from './MemberTable'
import { RoleGuide } from './RoleGuide'

export function Members() {
  const { orgId } = useMe()
  const [inviting, setInviting] = useState(false)
  const list = api.useInfiniteQuery('get', '/api/v1/orgs/{orgId}/members', { params: { path: { orgId }, query: { limit: 100 } } }, cursorPaging)
  const members = list.data?.pages.flatMap((page) => page.members) ?? []
  const invitations = list.data?.pages[0]?.invitations ?? []
  return (
    <Page
      title="Members"
      about="People in this organization. Programs use keys instead."
      actions={
        <Button kind="primary" needs="admin" icon={<UserPlus size={14} aria-hidden />} onClick={() => setInviting(true)}>
          Invite
        </Button>
      }
    >
      {list.isPending ? (
        <SkeletonRows rows={4} />
      ) : list.isError ? (
        <ErrorPanel error={list.error} what="the members" onRetry={() => void list.refetch()} />
      ) : (
        <>
          <Section flush>
            <MemberTable members={members} />
            <Pager shown={members.length} what="members" more={list.hasNextPage} busy={list.isFetchingNextPage} onMore={() => void list.fetchNextPage()} />
          </Section>
          {invitations.length > 0 && <Invitations invitations={invitations} />}
          <RoleGuide />
        </>
      )}
      {inviting && <InviteForm onClose={() => setInviting(false)} />}
    </Page>
  )
}
