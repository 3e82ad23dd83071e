//! Embeds the built web console and the documentation site. A release build embeds `console/dist` and `site/dist`; a debug
//! build reads these directories at start, so that a change does not require a new build. Without them the gateway serves
//! pages that say so, unless `GATEWAY_REQUIRE_CONSOLE=1` makes the build fail.

#![expect(clippy::disallowed_methods, reason = "Cargo passes parameters to build scripts in the environment")]

#[path = "src/console/list_files.rs"]
mod list_files;

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (console, fixture) = (package.join("../../console"), package.join("tests/fixtures/console"));
    let site = package.join("../../site");
    let (dist, docs) = (console.join("dist"), site.join("dist"));
    let is_required = env::var("GATEWAY_REQUIRE_CONSOLE").is_ok_and(|value| value == "1");
    let is_embedded = is_required || env::var("PROFILE")? == "release";
    let is_built = dist.join("index.html").is_file();
    if is_required && !is_built {
        return Err("GATEWAY_REQUIRE_CONSOLE=1, but the web console is not built: run `make console`".into());
    }
    let has_docs = docs.join("index.html.br").is_file();
    if is_required && !has_docs {
        return Err("GATEWAY_REQUIRE_CONSOLE=1, but the documentation is not built: run `make docs`".into());
    }
    println!("cargo::rerun-if-env-changed=GATEWAY_REQUIRE_CONSOLE");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/console/list_files.rs");
    println!("cargo::rerun-if-changed={}", fixture.display());
    if is_embedded {
        // A missing path would cause a rebuild every time, so its parent is watched instead.
        for places in [[&dist, &console], [&docs, &site]] {
            if let Some(watched) = places.into_iter().find(|path| path.is_dir()) {
                println!("cargo::rerun-if-changed={}", watched.display());
            }
        }
    } else {
        println!("cargo::rustc-env=DOCS_DIST={}", docs.display());
        println!("cargo::rustc-env=CONSOLE_DIST={}", dist.display());
    }
    fs::write(out.join("console.rs"), table(if is_embedded && is_built { Some(&dist) } else { None })?)?;
    fs::write(out.join("docs.rs"), table(if is_embedded && has_docs { Some(&docs) } else { None })?)?;
    fs::write(out.join("console_fixture.rs"), table(fixture.is_dir().then_some(&fixture))?)?;
    Ok(())
}

/// Returns an expression of type `&[(&str, &[u8])]` with every file below the directory.
fn table(directory: Option<&PathBuf>) -> io::Result<String> {
    let files = match directory {
        Some(directory) => list_files::list_files(&directory.canonicalize()?)?,
        None => Vec::new(),
    };
    let mut text = String::from("&[\n");
    for (name, path) in files {
        let path = path.display().to_string();
        let _ = writeln!(text, "    ({name:?}, include_bytes!({path:?})),");
    }
    text.push_str("]\n");
    Ok(text)
}
