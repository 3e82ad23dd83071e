/** Images for requests: read from a file, and made smaller if they would not fit. */
import { ApiError } from '@/api/error'

/** The playground accepts requests of 1 MiB; base64 takes a third more. */
const MAX_BYTES = 240_000
const MAX_FILE_BYTES = 20_000_000
const SIZES = [1568, 1024, 768, 512]

/** A data URL of the image, at most about 240 KB. */
export async function readImage(file: Blob): Promise<string> {
  if (!file.type.startsWith('image/')) throw problem('This is not an image. Choose a PNG, JPEG, WebP or GIF file.')
  if (file.size > MAX_FILE_BYTES) throw problem('The image is larger than 20 MB. Choose a smaller one.')
  if (file.size <= MAX_BYTES) return dataUrl(file)
  const bitmap = await createImageBitmap(file).catch(() => {
    throw problem('The image cannot be read. Choose a PNG, JPEG, WebP or GIF file.')
  })
  try {
    for (const size of SIZES) {
      const smaller = await shrink(bitmap, size)
      if (smaller.size <= MAX_BYTES) return await dataUrl(smaller)
    }
  } finally {
    bitmap.close()
  }
  throw problem('The image is too large. Choose a smaller one.')
}

/** Width and height with the longer side at most `max`, never enlarged. */
export function fitSize(width: number, height: number, max: number): { width: number; height: number } {
  const scale = Math.min(1, max / Math.max(width, height, 1))
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) }
}

async function shrink(bitmap: ImageBitmap, max: number): Promise<Blob> {
  const { width, height } = fitSize(bitmap.width, bitmap.height, max)
  const canvas = new OffscreenCanvas(width, height)
  canvas.getContext('2d')?.drawImage(bitmap, 0, 0, width, height)
  return canvas.convertToBlob({ type: 'image/jpeg', quality: 0.85 })
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((done, fail) => {
    const reader = new FileReader()
    reader.onload = () => done(String(reader.result))
    reader.onerror = () => fail(problem('The file cannot be read.'))
    reader.readAsDataURL(blob)
  })
}

function problem(message: string): ApiError {
  return new ApiError(0, { code: 'image', message })
}
