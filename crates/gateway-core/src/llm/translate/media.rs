//! Pictures, sounds and documents: data URLs and the short names of formats.

use super::super::chat::{Media, MediaKind, MediaSource};

/// A URL as a source: data URLs are taken apart, others stay what they are.
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

/// What a media type is of.
pub(super) fn media_kind(mime: &str) -> MediaKind {
    match mime.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    }
}

/// The short name that OpenAI and Bedrock use where others have a media type.
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

/// The media type of one of OpenAI's names for sound formats.
pub(super) fn audio_mime(format: &str) -> String {
    match format {
        "mp3" => "audio/mpeg".to_owned(),
        other => format!("audio/{other}"),
    }
}
