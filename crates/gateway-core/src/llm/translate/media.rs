//! Helpers for images, audio and documents: data URLs and conversions between MIME types and format names.

use super::super::chat::{Media, MediaKind, MediaSource};

/// Converts a URL to a source. A data URL is split into MIME type and data.
pub(super) fn source_from_url(url: String) -> MediaSource {
    let parts = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match parts {
        Some((mime, data)) => MediaSource::Base64 { mime: mime.to_owned(), data: data.to_owned() },
        None => MediaSource::Url { url, mime: None },
    }
}

pub(super) fn data_url(mime: &str, data: &str) -> String {
    format!("data:{mime};base64,{data}")
}

pub(super) fn image(source: MediaSource) -> Media {
    Media { kind: MediaKind::Image, source, name: None, detail: None }
}

/// Returns the kind of media that a MIME type denotes.
pub(super) fn media_kind(mime: &str) -> MediaKind {
    match mime.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    }
}

/// Returns the format name that OpenAI and Bedrock use instead of a MIME type.
pub(super) fn mime_to_format(mime: &str) -> &str {
    match mime {
        "image/jpg" | "image/jpeg" => "jpeg",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "text/plain" => "txt",
        "text/markdown" => "md",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "video/quicktime" => "mov",
        "video/x-matroska" => "mkv",
        "video/3gpp" => "three_gp",
        other => other.rsplit('/').next().unwrap_or(other),
    }
}

/// Returns the MIME type of one of OpenAI's audio format names.
pub(super) fn audio_mime(format: &str) -> String {
    match format {
        "mp3" => "audio/mpeg".to_owned(),
        other => format!("audio/{other}"),
    }
}
