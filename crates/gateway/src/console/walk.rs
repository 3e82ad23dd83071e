//! Which files a built console consists of. The build script uses this file too, so that what is embedded and what is
//! read from the directory are the same.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Every file below a directory with its path there, in order. What begins with a dot is the bundler's own.
pub fn walk(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    let mut waiting = vec![(directory.to_path_buf(), String::new())];
    while let Some((place, prefix)) = waiting.pop() {
        for entry in fs::read_dir(place)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let name = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                waiting.push((entry.path(), format!("{name}/")));
            } else {
                files.push((name, entry.path()));
            }
        }
    }
    files.sort();
    Ok(files)
}
