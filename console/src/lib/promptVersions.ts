/** Versions and labels of a prompt as choices. */

/** A version, a label, or null for the latest version. */
export type VersionChoice = number | string | null

/** At most this many versions are listed; older ones can be opened on the page of the prompt. */
const MAX_LISTED = 100

/** `Latest (v3)`, `production (v2)`, `v3`, `v2`, `v1`. The current choice is always listed. */
export function versionOptions(latest: number, labels: Readonly<Record<string, number>>, current: VersionChoice): { value: string; label: string }[] {
  const named = Object.entries(labels).toSorted(([a], [b]) => a.localeCompare(b))
  const listed = Math.min(latest, MAX_LISTED)
  const options = [
    { value: '', label: latest > 0 ? `Latest (v${latest})` : 'Latest' },
    ...named.map(([label, version]) => ({ value: label, label: `${label} (v${version})` })),
    ...Array.from({ length: listed }, (_, at) => ({ value: String(latest - at), label: `v${latest - at}` })),
  ]
  const value = String(current ?? '')
  return options.some((option) => option.value === value) ? options : [...options, { value, label: typeof current === 'number' ? `v${current}` : value }]
}

/** Labels by the version that they point to. */
export function labelsOf(version: number, labels: Readonly<Record<string, number>>): string[] {
  return Object.entries(labels).filter(([, of]) => of === version).map(([label]) => label).toSorted()
}

/** A version as in `X-Gateway-Prompt`: `@2`, `@production`, or empty for the latest. */
export function atVersion(version: VersionChoice): string {
  return version === null ? '' : `@${version}`
}

const LABEL_PATTERN = /^[a-z][a-z0-9._-]{0,63}$/

/** Why a text cannot be a label, or null. The server has the same rule. */
export function labelProblem(label: string): string | null {
  if (!LABEL_PATTERN.test(label)) return 'Starts with a lowercase letter, then lowercase letters, digits, . _ or -'
  if (label === 'latest' || /^v\d+$/.test(label)) return `"${label}" could be taken for a version`
  return null
}
