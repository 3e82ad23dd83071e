//! What a caller says it takes and what it has already: `Accept-Encoding` and `If-None-Match`.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, IF_NONE_MATCH};

/// How the bytes of a file are packed; the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    Brotli,
    Gzip,
    Identity,
}

impl Encoding {
    /// The file that a name stands for, and the form of it.
    pub fn of_file(name: &str) -> (&str, Self) {
        match (name.strip_suffix(".br"), name.strip_suffix(".gz")) {
            (Some(name), _) => (name, Self::Brotli),
            (_, Some(name)) => (name, Self::Gzip),
            _ => (name, Self::Identity),
        }
    }

    /// As `Content-Encoding` has it.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }
}

/// The form that the caller likes best, among equals the smallest. A caller that refuses all gets the last, unpacked.
pub fn preferred<'a>(headers: &HeaderMap, forms: &'a [(Encoding, Bytes)]) -> Option<&'a (Encoding, Bytes)> {
    let wishes: Vec<(&str, u16)> = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(wishes)
        .collect();
    let weight = |encoding: Encoding| {
        let of = |wanted: &str| wishes.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        match encoding.name() {
            Some(name) => of(name).or_else(|| of("*")).map_or(0, |(_, weight)| *weight),
            // Allowed unless it is refused, but liked less than anything that is asked for.
            None => of("identity").or_else(|| of("*").filter(|(_, weight)| *weight == 0)).map_or(1, |w| w.1),
        }
    };
    let allowed = |encoding: Encoding| encoding == Encoding::Identity || weight(encoding) > 0;
    // `max_by_key` takes the last of equals.
    forms.iter().rev().filter(|form| allowed(form.0)).max_by_key(|form| weight(form.0))
}

/// Names and weights in thousandths; what cannot be read weighs nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is cast is between 0 and 1000"
)]
fn wishes(value: &str) -> impl Iterator<Item = (&str, u16)> {
    value.split(',').map(|wish| {
        let (name, parameters) = wish.split_once(';').unwrap_or((wish, "q=1"));
        let number = parameters.trim().strip_prefix("q=").and_then(|number| number.parse::<f32>().ok());
        let weight = number.filter(|number| (0.0..=1.0).contains(number)).unwrap_or_default();
        (name.trim(), (weight * 1000.0).round() as u16)
    })
}

/// Is this tag among those that the caller has?
pub fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = known.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    tags.any(|known| {
        let known = known.trim();
        known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn chosen(accept: &[&'static str], forms: &[Encoding]) -> Encoding {
        let headers: HeaderMap =
            accept.iter().map(|value| (ACCEPT_ENCODING, HeaderValue::from_static(value))).collect();
        let forms: Vec<_> = forms.iter().map(|encoding| (*encoding, Bytes::new())).collect();
        preferred(&headers, &forms).unwrap().0
    }

    #[test]
    fn the_caller_gets_the_form_that_it_likes_best() {
        use Encoding::{Brotli, Gzip, Identity};
        let all = [Brotli, Gzip, Identity];
        for (accept, expected) in [
            (&[][..], Identity),
            (&[""], Identity),
            (&["gzip, deflate, br, zstd"], Brotli),
            (&["gzip"], Gzip),
            (&["gzip", "br"], Brotli),
            (&["GZIP;q=1, br;q=0.5"], Gzip),
            (&["br;q=0, gzip;q=0.1"], Gzip),
            (&["*"], Brotli),
            (&["br;q=0, *;q=0.2"], Gzip),
            (&["identity;q=1, br;q=0.5"], Identity),
            (&["br;q=0"], Identity),
            (&["br;q=nonsense"], Identity),
            (&["*;q=0"], Identity),
            (&["zstd"], Identity),
        ] {
            assert_eq!(chosen(accept, &all), expected, "{accept:?}");
        }
        assert_eq!(chosen(&["br"], &[Identity]), Identity);
        assert_eq!(chosen(&["br, gzip"], &[Gzip, Identity]), Gzip);
    }
}
