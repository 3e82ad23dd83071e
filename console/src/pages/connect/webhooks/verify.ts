/** Signature verification snippets for receivers (Standard Webhooks format). */
import type { Snippet } from '@/ui'

const PYTHON = `import base64, hashlib, hmac, time

def verify(secret: str, headers, body: bytes) -> bool:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    if abs(time.time() - int(headers["webhook-timestamp"])) > 300:
        return False
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    # Several signatures, separated by spaces, while a secret is being replaced.
    given = [part.split(",", 1)[1] for part in headers["webhook-signature"].split()]
    return any(hmac.compare_digest(expected, one) for one in given)`

const TYPESCRIPT = `import { createHmac, timingSafeEqual } from 'node:crypto'

export function verify(secret: string, headers: Record<string, string>, body: Buffer): boolean {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': given } = headers
  if (Math.abs(Date.now() / 1000 - Number(at)) > 300) return false
  const expected = createHmac('sha256', key).update(\`\${id}.\${at}.\`).update(body).digest()
  return given.split(' ').some((part) => {
    const one = Buffer.from(part.split(',')[1] ?? '', 'base64')
    return one.length === expected.length && timingSafeEqual(one, expected)
  })
}`

const GO = `func verify(secret string, h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	at, _ := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), at, body)
	for _, part := range strings.Fields(h.Get("webhook-signature")) {
		_, given, _ := strings.Cut(part, ",")
		if one, err := base64.StdEncoding.DecodeString(given); err == nil && hmac.Equal(one, mac.Sum(nil)) {
			return true
		}
	}
	return false
}`

export function verifySnippets(): Snippet[] {
  return [
    { name: 'Python', code: PYTHON },
    { name: 'TypeScript', code: TYPESCRIPT },
    { name: 'Go', code: GO },
  ]
}
