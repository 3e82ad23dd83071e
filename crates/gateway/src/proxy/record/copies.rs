//! The copies of request and response body that the log row stores.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gateway_core::llm::estimate::{estimate_from_chars, estimate_tokens};
use gateway_core::llm::preview::last_user_text;
use gateway_core::logs::{BodyStorage, MAX_BODY_BYTES};

use crate::memory::{Reservation, hold};
use crate::outbound::body::StreamedCopy;

/// The memory of so much of a response is reserved with the request.
const SMALL_RESPONSE: usize = 8 << 10;

pub(super) struct BodyCopies {
    /// Bodies are logged.
    is_enabled: bool,
    request: RequestCopy,
    response: Vec<u8>,
    /// For the response.
    memory: Reservation,
    is_response_truncated: bool,
    pub response_is_stream: bool,
}

enum RequestCopy {
    None,
    /// The start of the body, and its length.
    Buffered(Bytes, usize),
    /// Filled while the body is sent.
    Streamed(Arc<Mutex<StreamedCopy>>),
}

impl BodyCopies {
    pub fn new(is_enabled: bool, memory: Reservation) -> Self {
        Self {
            is_enabled,
            request: RequestCopy::None,
            response: Vec::new(),
            memory,
            is_response_truncated: false,
            response_is_stream: false,
        }
    }

    /// A long body is copied in part, so that it need not be kept while the response streams.
    pub fn set_request(&mut self, body: &Bytes) {
        let copy = if body.len() <= MAX_BODY_BYTES {
            body.clone()
        } else {
            let memory = self.memory.sibling(MAX_BODY_BYTES);
            memory.map_or_else(|_| Bytes::new(), |memory| hold(body[..MAX_BODY_BYTES].to_vec(), memory))
        };
        self.request = RequestCopy::Buffered(copy, body.len());
    }

    pub fn stream_request(&mut self) -> Arc<Mutex<StreamedCopy>> {
        let capacity = if self.is_enabled { MAX_BODY_BYTES } else { 0 };
        let copy = Arc::new(Mutex::new(StreamedCopy::with_capacity(capacity, self.memory.empty_sibling())));
        self.request = RequestCopy::Streamed(Arc::clone(&copy));
        copy
    }

    pub fn append_response(&mut self, chunk: &[u8]) {
        if self.is_enabled && !self.is_response_truncated {
            let capacity = MAX_BODY_BYTES - self.response.len();
            let copied = &chunk[..chunk.len().min(capacity)];
            let has_room = self.prepare_response(copied.len());
            if has_room {
                self.response.extend_from_slice(copied);
            }
            self.is_response_truncated = chunk.len() > capacity || !has_room;
        }
    }

    /// More of the response is copied.
    pub fn wants_response(&self) -> bool {
        self.is_enabled && !self.is_response_truncated
    }

    /// Makes room for so many more bytes. Returns false if there is no memory for them.
    fn prepare_response(&mut self, bytes: usize) -> bool {
        let (length, capacity) = (self.response.len() + bytes, self.response.capacity());
        if length <= capacity {
            return true;
        }
        let wanted = length.max(capacity * 2).min(MAX_BODY_BYTES);
        let is_reserved = self.memory.resize(wanted.saturating_sub(SMALL_RESPONSE)).is_ok();
        if is_reserved {
            self.response.reserve_exact(wanted - self.response.len());
        }
        is_reserved
    }

    /// The copy ends here.
    pub fn set_response_truncated(&mut self) {
        self.is_response_truncated = true;
    }

    pub fn take_request(&mut self) -> (Vec<u8>, BodyStorage) {
        if !self.is_enabled {
            return (Vec::new(), BodyStorage::Off);
        }
        self.with_request(|body, length| {
            let storage = if length > body.len() { BodyStorage::Truncated } else { BodyStorage::Full };
            (body.to_vec(), storage)
        })
    }

    pub fn take_response(&mut self) -> (Vec<u8>, BodyStorage) {
        match (self.is_enabled, self.is_response_truncated) {
            (false, _) => (Vec::new(), BodyStorage::Off),
            (true, true) => (std::mem::take(&mut self.response), BodyStorage::Truncated),
            (true, false) => (std::mem::take(&mut self.response), BodyStorage::Full),
        }
    }

    /// Estimates the prompt tokens of the request body.
    pub fn estimate_prompt_tokens(&self) -> u64 {
        self.with_request(|body, length| {
            // This runs on the thread of the request, so a long body is not parsed.
            let is_short = body.len() == length && length < MAX_BODY_BYTES;
            match is_short.then(|| last_user_text(body)).flatten() {
                // The rest of the body is other messages and JSON syntax.
                Some(text) => {
                    estimate_tokens(&text)
                        + estimate_from_chars((body.len().saturating_sub(text.len()) / 2) as u64)
                }
                None => estimate_from_chars(length as u64),
            }
        })
    }

    /// Calls `read` with the copy of the request body and the length of the whole body.
    fn with_request<T>(&self, read: impl FnOnce(&[u8], usize) -> T) -> T {
        match &self.request {
            RequestCopy::None => read(&[], 0),
            RequestCopy::Buffered(body, length) => read(body, *length),
            RequestCopy::Streamed(copy) => {
                let copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
                read(copy.prefix(), copy.length)
            }
        }
    }
}
