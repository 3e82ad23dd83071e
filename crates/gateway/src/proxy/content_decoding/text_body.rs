//! A response body as text, for readers inside of the gateway.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use http_body::{Body as HttpBody, Frame};

use super::{ContentCodings, ContentDecoder, PART_BYTES};

/// Decodes a body while it is read. What cannot be decoded is left out, as if it had not been sent. However much the body
/// grows, the task that reads it decodes it: in parts, and up to the limit.
pub struct TextBody {
    body: Body,
    decoder: ContentDecoder,
    /// What is left of a chunk; none between chunks.
    rest: Option<Bytes>,
    /// A part was read, and others may follow it.
    yields: bool,
}

impl TextBody {
    /// A body without codings is returned as it is.
    pub fn of(codings: ContentCodings, body: Body, max_bytes: u64) -> Body {
        match codings.decoder(max_bytes) {
            None => body,
            Some(decoder) => Body::new(Self { body, decoder, rest: None, yields: false }),
        }
    }

    /// The next part of the chunk, which is empty if there is no more.
    fn decode_part(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        let Some(chunk) = &mut self.rest else { return text };
        let mut rest = &chunk[..];
        let decoded =
            self.decoder.decode_some(&mut rest, PART_BYTES, &mut |piece| text.extend_from_slice(piece));
        let read = chunk.len() - rest.len();
        chunk.advance(read);
        self.yields = decoded == Ok(false);
        if !self.yields {
            self.rest = None;
        }
        text
    }
}

impl HttpBody for TextBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if std::mem::take(&mut this.yields) {
                // A few bytes may become many: other tasks of the thread go on in between.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let text = this.decode_part();
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
            if this.rest.is_some() {
                continue;
            }
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => {
                        this.decoder.begin(chunk.len());
                        this.rest = Some(chunk);
                    }
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                ended => return ended,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderMap;
    use http::header::CONTENT_ENCODING;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_as_text_in_parts() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&text).unwrap();
        let encoded = encoder.finish().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        let codings = ContentCodings::from_headers(&headers).unwrap();
        let read = async |chunks: Vec<Bytes>, max_bytes: u64| {
            let frames = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
            let body = Body::new(StreamBody::new(futures_util::stream::iter(frames)));
            let mut body = TextBody::of(codings, body, max_bytes);
            let (mut read, mut largest) = (Vec::new(), 0);
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                largest = largest.max(data.len());
                read.extend_from_slice(&data);
            }
            (read, largest)
        };
        let (whole, largest) = read(vec![encoded.clone().into()], 1 << 20).await;
        assert!(whole == text);
        assert!(largest < 2 * PART_BYTES, "{largest}");
        let chunks: Vec<Bytes> = encoded.chunks(1_000).map(Bytes::copy_from_slice).collect();
        assert!(read(chunks, 1 << 20).await.0 == text);
        // What comes after the limit is left out.
        let (start, _) = read(vec![encoded.into()], 100_000).await;
        assert!(!start.is_empty() && start.len() <= 100_000 && text.starts_with(&start));
    }
}
