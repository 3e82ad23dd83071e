//! Writes cases in chunks: as one JSON document, as NDJSON, or as CSV that the import can read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Case;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Format")]
pub enum ExportFormat {
    Json,
    Csv,
    Ndjson,
}

impl ExportFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    /// The text before the first case.
    pub fn prologue(self) -> &'static str {
        match self {
            Self::Json => "{\"cases\":[",
            Self::Csv => "input,expected,metadata\n",
            Self::Ndjson => "",
        }
    }

    /// The text after the last case.
    pub fn epilogue(self) -> &'static str {
        match self {
            Self::Json => "]}\n",
            Self::Csv | Self::Ndjson => "",
        }
    }

    /// Writes consecutive cases. `first` is true for the first chunk.
    pub fn write(self, cases: &[Case], first: bool) -> Vec<u8> {
        match self {
            Self::Json => {
                let mut out = Vec::new();
                for (index, case) in cases.iter().enumerate() {
                    out.extend_from_slice(if first && index == 0 { b"\n" } else { b",\n" });
                    out.extend(serde_json::to_vec(case).unwrap_or_default());
                }
                out
            }
            Self::Ndjson => cases
                .iter()
                .flat_map(|case| serde_json::to_vec(case).unwrap_or_default().into_iter().chain([b'\n']))
                .collect(),
            Self::Csv => csv(cases),
        }
    }
}

fn csv(cases: &[Case]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for case in cases {
        let row = [cell(case.input.get()), cell(case.expected.get()), cell(case.metadata.get())];
        // Writing to memory does not fail.
        let _ = writer.write_record(row);
    }
    writer.into_inner().unwrap_or_default()
}

/// A string as it is, an empty cell for null, any other value as JSON.
fn cell(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::String(text)) => text,
        Ok(Value::Null) => String::new(),
        _ => json.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::import::{self, ImportFormat};
    use super::*;
    use crate::datasets::CaseContent;
    use crate::ids::CaseId;
    use crate::time::Timestamp;
    use serde_json::json;
    use serde_json::value::RawValue;

    fn case(input: &Value, expected: &Value) -> Case {
        let raw = |value: &Value| RawValue::from_string(value.to_string()).unwrap();
        Case {
            id: CaseId(uuid::Uuid::from_u128(1)),
            input: raw(input),
            expected: raw(expected),
            metadata: raw(&json!({"k": "v"})),
            created_at: Timestamp(0),
            updated_at: Timestamp(1),
        }
    }

    fn written(format: ExportFormat, cases: &[Case]) -> String {
        let mut text = format.prologue().to_owned();
        for (index, case) in cases.iter().enumerate() {
            text += &String::from_utf8(format.write(std::slice::from_ref(case), index == 0)).unwrap();
        }
        text + format.epilogue()
    }

    #[test]
    fn every_format_reads_back_as_what_was_written() {
        let values = [json!("plain"), json!("a,\"b\"\r\nc"), json!({"q": [1, "ü"]}), json!([1, 2])];
        let cases: Vec<Case> = values.iter().map(|value| case(value, &Value::Null)).collect();
        let expected: Vec<CaseContent> = values
            .iter()
            .map(|value| CaseContent::new(value, &Value::Null, &json!({"k": "v"})).unwrap())
            .collect();
        for (format, read) in [
            (ExportFormat::Json, ImportFormat::Json),
            (ExportFormat::Csv, ImportFormat::Csv),
            (ExportFormat::Ndjson, ImportFormat::Ndjson),
        ] {
            let mut found = Vec::new();
            let text = written(format, &cases);
            import::read(read, text.as_bytes(), &mut |content| {
                found.push(content);
                true
            })
            .unwrap();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn an_empty_dataset_is_written_whole() {
        assert_eq!(written(ExportFormat::Json, &[]), "{\"cases\":[]}\n");
        assert_eq!(written(ExportFormat::Csv, &[]), "input,expected,metadata\n");
        assert_eq!(written(ExportFormat::Ndjson, &[]), "");
    }

    #[test]
    fn a_line_of_json_is_the_case_as_the_api_shows_it() {
        let line = written(ExportFormat::Ndjson, &[case(&json!("x"), &json!(true))]);
        assert_eq!(
            line,
            "{\"id\":\"00000000-0000-0000-0000-000000000001\",\"input\":\"x\",\"expected\":true,\
             \"metadata\":{\"k\":\"v\"},\"created_at\":\"1970-01-01T00:00:00.000Z\",\
             \"updated_at\":\"1970-01-01T00:00:00.001Z\"}\n"
        );
    }
}
