//! The state of the current attempt: its target, credential, translation and usage chunk.

use std::borrow::Cow;
use std::sync::Arc;

use gateway_core::llm::WireFormat;
use gateway_core::llm::aggregate::stream_path;
use http::request::Parts;
use secrecy::SecretString;

use super::plan::{Adaptation, Plan, RouteTarget};
use super::translate::Translation;
use crate::targets::{Credential, Target};

pub struct Attempt<'a> {
    pub plan: &'a Plan<'a>,
    pub target: &'a RouteTarget,
    /// Index of the stored credential.
    pub credential: Option<usize>,
    /// Stored credentials that failed since the last retry.
    pub failed_credentials: Vec<usize>,
    /// Retries made at this target.
    pub retries: u32,
    pub translation: Option<Arc<Translation>>,
    pub usage_chunk: UsageChunk,
    /// The prompt-cache marks that the gateway added. None: it was not to add any.
    pub cache_marks: Option<u32>,
    /// The prompt begins like an earlier call of the conversation. None: not known yet.
    pub is_head_repeated: Option<bool>,
}

/// Which side requested the usage chunk at the end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageChunk {
    /// The caller, or neither side: the stream is forwarded unchanged.
    Callers,
    /// Only the gateway, which removes it from the stream.
    Ours,
    /// The gateway did, and the provider rejected the request because of it.
    Refused,
}

impl<'a> Attempt<'a> {
    /// An attempt at the target of this index.
    pub fn new(plan: &'a Plan<'a>, index: usize) -> Self {
        Self {
            plan,
            target: &plan.targets[index],
            credential: None,
            failed_credentials: Vec::new(),
            retries: 0,
            translation: None,
            usage_chunk: UsageChunk::Callers,
            cache_marks: None,
            is_head_repeated: None,
        }
    }

    /// Prepares a retry at the same target.
    pub fn retry_with(&mut self, credential: Option<usize>) {
        self.retries += 1;
        self.failed_credentials.clear();
        self.credential = credential;
    }

    /// Replaces a credential that was rejected or limited.
    pub fn switch_credential(&mut self, other: Option<usize>) {
        self.failed_credentials.extend(self.credential);
        self.credential = other;
    }

    pub fn provider(&self) -> &'a Arc<Target> {
        &self.target.provider
    }

    pub fn model(&self) -> Option<&'a str> {
        self.target.model.as_deref()
    }

    pub fn stored_credential(&self) -> Option<&'a Credential> {
        self.target.provider.credentials.get(self.credential?)
    }

    pub fn secret(&self) -> Option<&'a SecretString> {
        Some(&self.stored_credential()?.secret)
    }

    /// The path is made for the target, without the caller's query.
    pub fn replaces_path(&self) -> bool {
        self.translation.is_some() || matches!(self.target.adaptation, Adaptation::Path(_))
    }

    /// The name of a model may be a part of the path.
    pub fn has_model_in_path(&self) -> bool {
        self.translation.is_some() || matches!(self.target.adaptation, Adaptation::Path(Cow::Owned(_)))
    }

    /// The path and query to send.
    pub fn path<'h>(&'h self, head: &'h Parts) -> Cow<'h, str> {
        let original = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match (&self.target.adaptation, &self.translation) {
            (_, Some(translation)) => translation.path.as_str().into(),
            (Adaptation::Path(path), None) => Cow::Borrowed(&**path),
            (Adaptation::Passthrough | Adaptation::Translate, None) if self.plan.adds_stream() => {
                stream_path(original, true).map_or(original.into(), Cow::Owned)
            }
            (Adaptation::Passthrough | Adaptation::Translate, None) => original.into(),
        }
    }

    /// The format of the response as the caller sees it. None for operations without streams.
    pub fn wire_format(&self) -> Option<WireFormat> {
        let directives = self.plan.directives;
        match &self.translation {
            Some(_) => WireFormat::of_response(directives.client_format.native(), directives.operation)
                .map(|_| directives.client_format.into()),
            None => WireFormat::of_response(self.target.provider.format, directives.operation),
        }
    }
}
