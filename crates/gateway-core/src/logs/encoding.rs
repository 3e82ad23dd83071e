//! A log row in bytes, as the spool keeps it. The row of every request is encoded before the last byte of its response, so
//! nothing is formatted, escaped or named.
//!
//! `version | flags (4) | fields, in the order of `LogRow::encode``. Flags hold the booleans and say which optional fields
//! follow. Numbers have a variable length, texts follow their length, ids are 16 bytes, and bodies are not part of it.
//! Fields and flags are only added, together with a version.

use rust_decimal::Decimal;
use serde_json::Map;
use uuid::Uuid;

use super::{Attempt, BodyStorage, LimitUses, LogLevel, LogRow, LogSource, PromptVersionRef, Tokens};
use crate::ids::OrgId;
use crate::llm::ProviderFormat;
use crate::packed::{Malformed, put_varint, take, take_length, take_varint};
use crate::time::Timestamp;

const VERSION: u8 = 1;
const FLAG_BYTES: usize = 4;

/// One bit each.
#[derive(Clone, Copy)]
enum Flag {
    Stream,
    UsageEstimated,
    Unpriced,
    ResponseIsStream,
    ProviderFormat,
    Model,
    ErrorCode,
    Ttft,
    Tokens,
    Cost,
    Cache,
    CacheMarks,
    CacheSaved,
    Queued,
    Limits,
    Key,
    App,
    Team,
    User,
    Session,
    Metadata,
    Prompt,
    Traceparent,
    Compat,
    Operation,
    Tool,
}

impl LogRow {
    /// Appends the row without its bodies.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        let flags_at = out.len();
        out.extend_from_slice(&[0; FLAG_BYTES]);
        let mut to = Encoder { out, flags: 0 };
        to.flag(Flag::Stream, self.stream);
        to.flag(Flag::UsageEstimated, self.usage_estimated);
        to.flag(Flag::Unpriced, self.unpriced);
        to.flag(Flag::ResponseIsStream, self.response_is_stream);
        to.signed(self.id);
        to.uuid(self.org_id.0);
        to.text(&self.request_id);
        to.signed(self.created_at.0);
        to.code(self.level as u8);
        to.code(self.source as u8);
        to.text(&self.provider);
        to.optional(Flag::ProviderFormat, self.provider_format, |to, format| to.code(format as u8));
        to.optional_text(Flag::Model, self.model.as_deref());
        to.text(&self.method);
        to.text(&self.path);
        to.number(self.status.into());
        to.optional_text(Flag::ErrorCode, self.error_code.as_deref());
        to.signed(self.latency_ms);
        to.optional(Flag::Ttft, self.ttft_ms, Encoder::signed);
        to.optional(Flag::Tokens, self.tokens.as_ref(), Encoder::tokens);
        to.optional(Flag::Cost, self.cost_usd, Encoder::decimal);
        to.optional_text(Flag::Cache, self.cache.as_deref());
        to.optional(Flag::CacheMarks, self.cache_marks, |to, marks| to.number(marks.into()));
        to.optional(Flag::CacheSaved, self.cache_saved_usd, Encoder::decimal);
        to.optional(Flag::Queued, self.queued_ms, Encoder::number);
        to.optional_text(Flag::Limits, self.limits.as_json());
        to.number(self.attempts.len() as u64);
        for attempt in &self.attempts {
            to.attempt(attempt);
        }
        to.optional(Flag::Key, self.key_id.map(|id| id.0), Encoder::uuid);
        to.optional(Flag::App, self.app_id.map(|id| id.0), Encoder::uuid);
        to.optional(Flag::Team, self.team_id.map(|id| id.0), Encoder::uuid);
        to.optional_text(Flag::User, self.user.as_deref());
        to.optional_text(Flag::Session, self.session_id.as_deref());
        let metadata = (!self.metadata.is_empty()).then_some(&self.metadata);
        let metadata = metadata.and_then(|metadata| serde_json::to_string(metadata).ok());
        to.optional_text(Flag::Metadata, metadata.as_deref());
        to.optional(Flag::Prompt, self.prompt.as_ref(), |to, prompt| {
            to.text(&prompt.name);
            to.signed(prompt.version);
        });
        to.optional_text(Flag::Traceparent, self.traceparent.as_deref());
        to.optional_text(Flag::Compat, self.compat.as_deref());
        to.optional_text(Flag::Operation, self.operation.as_deref());
        to.optional_text(Flag::Tool, self.tool.as_deref());
        to.code(self.request_stored as u8);
        to.code(self.response_stored as u8);
        let flags = to.flags.to_le_bytes();
        out[flags_at..flags_at + FLAG_BYTES].copy_from_slice(&flags);
    }

    /// Reads what `encode` wrote. The bodies are empty.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = bytes;
        if take(&mut bytes, 1)? != [VERSION] {
            return Err(Malformed("a log row of an unknown version"));
        }
        let flags = take(&mut bytes, FLAG_BYTES)?.try_into().map_err(|_| Malformed("flags end early"))?;
        let mut from = Decoder { bytes, flags: u32::from_le_bytes(flags) };
        let row = Self {
            stream: from.has(Flag::Stream),
            usage_estimated: from.has(Flag::UsageEstimated),
            unpriced: from.has(Flag::Unpriced),
            response_is_stream: from.has(Flag::ResponseIsStream),
            id: from.signed()?,
            org_id: OrgId(from.uuid()?),
            request_id: from.text()?,
            created_at: Timestamp(from.signed()?),
            level: from.one_of([LogLevel::Info, LogLevel::Warn, LogLevel::Error])?,
            source: from.one_of(LogSource::ALL)?,
            provider: from.text()?,
            provider_format: from.optional(Flag::ProviderFormat, |from| from.one_of(ProviderFormat::ALL))?,
            model: from.optional(Flag::Model, Decoder::text)?,
            method: from.text()?,
            path: from.text()?,
            status: from.small()?,
            error_code: from.optional(Flag::ErrorCode, Decoder::text)?,
            latency_ms: from.signed()?,
            ttft_ms: from.optional(Flag::Ttft, Decoder::signed)?,
            tokens: from.optional(Flag::Tokens, Decoder::tokens)?,
            cost_usd: from.optional(Flag::Cost, Decoder::decimal)?,
            cache: from.optional(Flag::Cache, Decoder::text)?,
            cache_marks: from.optional(Flag::CacheMarks, Decoder::small)?,
            cache_saved_usd: from.optional(Flag::CacheSaved, Decoder::decimal)?,
            queued_ms: from.optional(Flag::Queued, |from| take_varint(&mut from.bytes))?,
            limits: from.optional(Flag::Limits, Decoder::text)?.map(LimitUses::from_json).unwrap_or_default(),
            attempts: from.attempts()?,
            key_id: from.optional(Flag::Key, Decoder::uuid)?.map(Into::into),
            app_id: from.optional(Flag::App, Decoder::uuid)?.map(Into::into),
            team_id: from.optional(Flag::Team, Decoder::uuid)?.map(Into::into),
            user: from.optional(Flag::User, Decoder::text)?,
            session_id: from.optional(Flag::Session, Decoder::text)?,
            metadata: from.optional(Flag::Metadata, Decoder::metadata)?.unwrap_or_default(),
            prompt: from.optional(Flag::Prompt, |from| {
                Ok(PromptVersionRef { name: from.text()?, version: from.signed()? })
            })?,
            traceparent: from.optional(Flag::Traceparent, Decoder::text)?,
            compat: from.optional(Flag::Compat, Decoder::text)?,
            operation: from.optional(Flag::Operation, Decoder::text)?,
            tool: from.optional(Flag::Tool, Decoder::text)?,
            request_stored: from.one_of(STORED)?,
            response_stored: from.one_of(STORED)?,
            request: Vec::new(),
            response: Vec::new(),
        };
        if from.bytes.is_empty() { Ok(row) } else { Err(Malformed("bytes follow a log row")) }
    }
}

const STORED: [BodyStorage; 3] = [BodyStorage::Full, BodyStorage::Truncated, BodyStorage::Off];
/// A request has fewer attempts by far.
const MAX_ATTEMPTS: usize = 1_024;

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    flags: u32,
}

impl Encoder<'_> {
    fn flag(&mut self, flag: Flag, is_set: bool) {
        self.flags |= u32::from(is_set) << flag as u32;
    }

    fn optional<T>(&mut self, flag: Flag, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        if let Some(value) = value {
            self.flag(flag, true);
            encode(self, value);
        }
    }

    fn optional_text(&mut self, flag: Flag, text: Option<&str>) {
        self.optional(flag, text, Self::text);
    }

    fn code(&mut self, code: u8) {
        self.out.push(code);
    }

    fn number(&mut self, value: u64) {
        put_varint(self.out, value);
    }

    /// Small numbers of either sign are short.
    fn signed(&mut self, value: i64) {
        put_varint(self.out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
    }

    fn text(&mut self, text: &str) {
        put_varint(self.out, text.len() as u64);
        self.out.extend_from_slice(text.as_bytes());
    }

    fn uuid(&mut self, id: Uuid) {
        self.out.extend_from_slice(id.as_bytes());
    }

    fn decimal(&mut self, value: Decimal) {
        self.number(value.scale().into());
        self.out.extend_from_slice(&value.mantissa().to_le_bytes());
    }

    fn tokens(&mut self, tokens: &Tokens) {
        let Tokens { prompt, completion, cached, cache_write, reasoning, audio } = *tokens;
        for count in [prompt, completion, cached, cache_write, reasoning, audio] {
            self.signed(count);
        }
    }

    /// Optional values follow a byte that says whether they are there; a status is counted from one.
    fn attempt(&mut self, attempt: &Attempt) {
        let Attempt { provider, model, status, start_ms, ttft_ms, latency_ms, error } = attempt;
        self.text(provider);
        self.present_text(model.as_deref());
        self.number(status.map_or(0, |status| u64::from(status) + 1));
        self.signed(*start_ms);
        self.code(u8::from(ttft_ms.is_some()));
        self.signed(ttft_ms.unwrap_or_default());
        self.signed(*latency_ms);
        self.present_text(error.as_deref());
    }

    fn present_text(&mut self, text: Option<&str>) {
        self.code(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }
}

struct Decoder<'a> {
    bytes: &'a [u8],
    flags: u32,
}

impl Decoder<'_> {
    fn has(&self, flag: Flag) -> bool {
        self.flags >> flag as u32 & 1 == 1
    }

    fn optional<T>(
        &mut self,
        flag: Flag,
        decode: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.has(flag) { decode(self).map(Some) } else { Ok(None) }
    }

    fn code(&mut self) -> Result<u8, Malformed> {
        take(&mut self.bytes, 1)?.first().copied().ok_or(Malformed("a code is missing"))
    }

    /// The value that the code stands for. Codes are the places of values.
    fn one_of<T: Copy, const N: usize>(&mut self, values: [T; N]) -> Result<T, Malformed> {
        values.get(usize::from(self.code()?)).copied().ok_or(Malformed("an unknown code"))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(take_varint(&mut self.bytes)?).map_err(|_| Malformed("a number is too large"))
    }

    fn signed(&mut self) -> Result<i64, Malformed> {
        let value = take_varint(&mut self.bytes)?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = take_length(&mut self.bytes)?;
        let text = take(&mut self.bytes, length)?;
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| Malformed("a text is not UTF-8"))
    }

    fn present_text(&mut self) -> Result<Option<String>, Malformed> {
        if self.code()? == 0 { Ok(None) } else { self.text().map(Some) }
    }

    fn uuid(&mut self) -> Result<Uuid, Malformed> {
        Uuid::from_slice(take(&mut self.bytes, 16)?).map_err(|_| Malformed("an id ends early"))
    }

    fn decimal(&mut self) -> Result<Decimal, Malformed> {
        let scale = self.small()?;
        let mantissa =
            take(&mut self.bytes, 16)?.try_into().map_err(|_| Malformed("an amount ends early"))?;
        Decimal::try_from_i128_with_scale(i128::from_le_bytes(mantissa), scale)
            .map_err(|_| Malformed("an amount is out of range"))
    }

    fn tokens(&mut self) -> Result<Tokens, Malformed> {
        Ok(Tokens {
            prompt: self.signed()?,
            completion: self.signed()?,
            cached: self.signed()?,
            cache_write: self.signed()?,
            reasoning: self.signed()?,
            audio: self.signed()?,
        })
    }

    fn attempts(&mut self) -> Result<Vec<Attempt>, Malformed> {
        let count = take_length(&mut self.bytes)?;
        if count > MAX_ATTEMPTS {
            return Err(Malformed("a log row has too many attempts"));
        }
        (0..count).map(|_| self.attempt()).collect()
    }

    fn attempt(&mut self) -> Result<Attempt, Malformed> {
        let (provider, model) = (self.text()?, self.present_text()?);
        let status: u32 = self.small()?;
        let status = status.checked_sub(1).map(u16::try_from).transpose();
        let status = status.map_err(|_| Malformed("a number is too large"))?;
        let (start_ms, has_ttft, ttft_ms) = (self.signed()?, self.code()? != 0, self.signed()?);
        let (ttft_ms, latency_ms) = (has_ttft.then_some(ttft_ms), self.signed()?);
        Ok(Attempt { provider, model, status, start_ms, ttft_ms, latency_ms, error: self.present_text()? })
    }

    fn metadata(&mut self) -> Result<Map<String, serde_json::Value>, Malformed> {
        let length = take_length(&mut self.bytes)?;
        let text = take(&mut self.bytes, length)?;
        serde_json::from_slice(text).map_err(|_| Malformed("metadata is not an object"))
    }
}

#[cfg(test)]
mod tests;
