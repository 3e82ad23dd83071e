//! The parts of a JSON number.

/// A number as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number<'a> {
    pub is_negative: bool,
    /// The digits before the decimal point.
    pub integer: &'a str,
    /// The digits behind the decimal point, if there are any.
    pub fraction: &'a str,
    /// The digits of the exponent, if there are any.
    pub exponent: &'a str,
    pub exponent_is_negative: bool,
}

impl<'a> Number<'a> {
    /// Reads the number at the start of a text. Returns it and its length, or None if the text starts with none.
    pub fn read(text: &'a str) -> Option<(Self, usize)> {
        let rest = text.strip_prefix('-');
        let is_negative = rest.is_some();
        let (integer, mut rest) = digits(rest.unwrap_or(text))?;
        if integer.len() > 1 && integer.starts_with('0') {
            return None;
        }
        let mut number =
            Number { is_negative, integer, fraction: "", exponent: "", exponent_is_negative: false };
        if let Some(fraction) = rest.strip_prefix('.') {
            (number.fraction, rest) = digits(fraction)?;
        }
        if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
            number.exponent_is_negative = exponent.starts_with('-');
            (number.exponent, rest) = digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))?;
        }
        Some((number, text.len() - rest.len()))
    }
}

/// Splits off the leading digits. None if there are none.
fn digits(text: &str) -> Option<(&str, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then(|| text.split_at(length))
}
