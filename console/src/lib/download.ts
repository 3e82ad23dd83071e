/** Starts a browser download of `content`. */
export function download(name: string, type: string, content: string): void {
  downloadParts(name, type, [content])
}

/** Like `download`, without joining the parts into one string first. */
export function downloadParts(name: string, type: string, parts: readonly BlobPart[]): void {
  const url = URL.createObjectURL(new Blob([...parts], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  URL.revokeObjectURL(url)
}
