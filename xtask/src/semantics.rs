//! The list of the tests of each rule of `docs/SEMANTICS.md`.

#[path = "../../crates/completion-port/tests/conformance/table/claims.rs"]
mod claims;

use std::path::Path;
use std::{fs, io};

/// Writes the list again.
pub(crate) fn semantics() -> io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let package = workspace.join("crates/completion-port");
    let page = fs::read_to_string(package.join("docs/SEMANTICS.md"))?;
    let made = claims::generate(&page, &claims::claims(&package)?).map_err(io::Error::other)?;
    let path = package.join("docs/TESTS.txt");
    if fs::read_to_string(&path).ok().is_none_or(|list| list != made) {
        fs::write(&path, made)?;
    }
    Ok(())
}
