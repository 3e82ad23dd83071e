//! Lists the files of the built console. Shared with the build script, so that embedded files and files read from the
//! directory are the same.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Returns the relative and the full path of every file below a directory, sorted. Hidden files belong to the bundler
/// and are skipped.
pub fn list_files(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    let mut pending = vec![(directory.to_path_buf(), String::new())];
    while let Some((path, prefix)) = pending.pop() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let name = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                pending.push((entry.path(), format!("{name}/")));
            } else {
                files.push((name, entry.path()));
            }
        }
    }
    files.sort();
    Ok(files)
}
