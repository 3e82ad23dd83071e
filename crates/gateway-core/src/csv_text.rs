//! Rows of CSV for people who open them in a spreadsheet.

/// A row. A cell that a spreadsheet would compute begins with an apostrophe.
pub fn row(cells: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(cells.into_iter().map(without_formula));
    writer.into_inner().unwrap_or_default()
}

fn without_formula(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text }
}
