/** Whether a request failed. A small module of its own: the badge of a status is part of the first load. */

/** By its status, or after it was sent: a stream that broke off, or a failure in the body of a 200. */
export function isFailed(row: { status: number; error_code?: string | null | undefined }): boolean {
  return row.status >= 400 || row.error_code != null
}
