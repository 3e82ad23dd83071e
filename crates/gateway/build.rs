//! Puts the built web console into the binary. A release build embeds `console/dist`; a debug build reads that
//! directory when it starts, so that a change of the console costs no build of the gateway. Without a built console
//! the gateway builds all the same and serves a page that says so, unless `GATEWAY_REQUIRE_CONSOLE=1` forbids it.

#![expect(
    clippy::disallowed_methods,
    reason = "Cargo gives a build script its parameters in the environment"
)]

#[path = "src/console/walk.rs"]
mod walk;

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let (console, fixture) = (package.join("../../console"), package.join("tests/fixtures/console"));
    let dist = console.join("dist");
    let is_required = env::var("GATEWAY_REQUIRE_CONSOLE").is_ok_and(|value| value == "1");
    let is_embedded = is_required || env::var("PROFILE")? == "release";
    let is_built = dist.join("index.html").is_file();
    if is_required && !is_built {
        return Err("GATEWAY_REQUIRE_CONSOLE=1, but the web console is not built: run `make console`".into());
    }
    println!("cargo::rerun-if-env-changed=GATEWAY_REQUIRE_CONSOLE");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/console/walk.rs");
    println!("cargo::rerun-if-changed={}", fixture.display());
    if is_embedded {
        // A path that is not there would make every build a new one; its parent tells when it appears.
        if let Some(watched) = [&dist, &console].into_iter().find(|path| path.is_dir()) {
            println!("cargo::rerun-if-changed={}", watched.display());
        }
    } else {
        println!("cargo::rustc-env=CONSOLE_DIST={}", dist.display());
    }
    fs::write(out.join("console.rs"), table(if is_embedded && is_built { Some(&dist) } else { None })?)?;
    fs::write(out.join("console_fixture.rs"), table(fixture.is_dir().then_some(&fixture))?)?;
    Ok(())
}

/// An expression of type `&[(&str, &[u8])]`: every file below the directory by its path there.
fn table(directory: Option<&PathBuf>) -> io::Result<String> {
    let files = match directory {
        Some(directory) => walk::walk(&directory.canonicalize()?)?,
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
