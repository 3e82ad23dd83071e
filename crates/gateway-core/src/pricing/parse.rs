//! Parses a price file. Errors name the line. Unknown columns are rejected, because a misspelt column would silently
//! have no effect.

use csv::{ReaderBuilder, StringRecord};
use rust_decimal::Decimal;

use super::{Price, PriceError, PriceTable};

pub(super) fn parse(csv: &str) -> Result<PriceTable, PriceError> {
    let mut reader = ReaderBuilder::new().from_reader(csv.as_bytes());
    let columns = reader.headers().map_err(|error| unreadable(&error))?.clone();
    for needed in ["provider", "model", "input_per_mtok"] {
        if !columns.iter().any(|column| column == needed) {
            return Err(PriceError { line: 1, message: format!("the column {needed} is missing") });
        }
    }
    let mut table = PriceTable::default();
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(&error))?;
        let line = record.position().map_or(0, csv::Position::line);
        let (provider, model, price) =
            row(&columns, &record).map_err(|message| PriceError { line, message })?;
        let models = table.providers.entry(provider.into()).or_default();
        if models.insert(model.into(), price).is_some() {
            return Err(PriceError { line, message: format!("duplicate row for {provider} {model}") });
        }
    }
    Ok(table)
}

fn row<'a>(columns: &StringRecord, record: &'a StringRecord) -> Result<(&'a str, &'a str, Price), String> {
    let (mut provider, mut model, mut price) = ("", "", Price::default());
    for (column, value) in columns.iter().zip(record) {
        let value = value.trim();
        let rate = |field: &mut Option<Decimal>| {
            *field = amount(column, value)?;
            Ok::<(), String>(())
        };
        match column {
            "provider" => provider = value,
            "model" => model = value,
            "mode" => price.mode = value.into(),
            "input_per_mtok" => rate(&mut price.input_per_mtok)?,
            "output_per_mtok" => rate(&mut price.output_per_mtok)?,
            "cache_read_per_mtok" => rate(&mut price.cache_read_per_mtok)?,
            "cache_write_per_mtok" => rate(&mut price.cache_write_per_mtok)?,
            "cache_write_1h_per_mtok" => rate(&mut price.cache_write_1h_per_mtok)?,
            "reasoning_per_mtok" => rate(&mut price.reasoning_per_mtok)?,
            "audio_input_per_mtok" => rate(&mut price.audio_input_per_mtok)?,
            "audio_output_per_mtok" => rate(&mut price.audio_output_per_mtok)?,
            "input_above_200k_per_mtok" => rate(&mut price.input_above_200k_per_mtok)?,
            "output_above_200k_per_mtok" => rate(&mut price.output_above_200k_per_mtok)?,
            "max_input_tokens" => price.max_input_tokens = tokens(column, value)?,
            "max_output_tokens" => price.max_output_tokens = tokens(column, value)?,
            other => return Err(format!("unknown column {other:?}")),
        }
    }
    if provider.is_empty() || model.is_empty() {
        return Err("provider and model are required".to_owned());
    }
    if price.input_per_mtok.is_none() {
        return Err(format!("{provider} {model} has no input_per_mtok"));
    }
    Ok((provider, model, price))
}

fn amount(column: &str, value: &str) -> Result<Option<Decimal>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let number = Decimal::from_str_exact(value).or_else(|_| Decimal::from_scientific(value));
    match number {
        Ok(number) if !number.is_sign_negative() => Ok(Some(number)),
        _ => Err(format!("{column} is not a price: {value:?}")),
    }
}

/// Parses a whole number; public price lists also write `8192.0`.
fn tokens(column: &str, value: &str) -> Result<Option<u64>, String> {
    let whole = value.strip_suffix(".0").unwrap_or(value);
    if whole.is_empty() {
        return Ok(None);
    }
    whole.parse().map(Some).map_err(|_| format!("{column} is not a number of tokens: {value:?}"))
}

fn unreadable(error: &csv::Error) -> PriceError {
    let line = error.position().map_or(1, csv::Position::line);
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("has {len} fields, but the first line has {expected_len}")
        }
        _ => error.to_string(),
    };
    PriceError { line, message }
}
