/** Snippets that use a prompt in a model request or render it. */
import type { Schemas } from '@/api/client'
import { labelsOf } from '@/lib/promptVersions'
import type { Snippet } from '@/ui'

export function promptSnippets(origin: string, name: string, prompt: Schemas['Prompt']): Snippet[] {
  const values = Object.fromEntries(prompt.variables.map((variable) => [variable, '…']))
  const at = labelsOf(prompt.version, prompt.labels)[0] ?? prompt.version
  const json = JSON.stringify(values)
  return [
    {
      name: 'curl',
      code: `curl ${origin}/api/v1/prompts/${name}/render?version=${at} \\\n  -H "X-Gateway-Key: $GATEWAY_KEY" -H "Content-Type: application/json" \\\n  -d '${JSON.stringify({ variables: values })}'`,
      note: 'Without ?version= the latest version is rendered. A version can be a number or a label.',
    },
    {
      name: 'Python',
      code: `import json, os, urllib.request\n\nrequest = urllib.request.Request(\n    "${origin}/api/v1/prompts/${name}/render",\n    headers={"X-Gateway-Key": os.environ["GATEWAY_KEY"], "Content-Type": "application/json"},\n    data=json.dumps({"variables": ${json}}).encode(),\n)\nprint(json.load(urllib.request.urlopen(request))["rendered"])`,
    },
    {
      name: 'In a request',
      code: `curl ${origin}/v1/chat/completions \\\n  -H "X-Gateway-Key: $GATEWAY_KEY" -H "X-Gateway-Provider: sandbox" \\\n  -H "X-Gateway-Prompt: ${name}@${at}" \\\n  -H 'X-Gateway-Prompt-Variables: ${json}' \\\n  -H "Content-Type: application/json" \\\n  -d '{"model": "sandbox-small", "messages": [{"role": "user", "content": "Hello!"}]}'`,
      note: typeof at === 'string' ? `${at} is v${prompt.version} now; moving the label changes what requests get.` : 'The rendered text goes before the messages, as a system message. Set a label to move versions without a deployment.',
    },
  ]
}
