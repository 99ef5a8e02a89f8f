//! The lists in `docs/SEMANTICS.md` of the tests of each rule.

#[path = "../../crates/completion-port/tests/conformance/table/claims.rs"]
mod claims;

use std::path::Path;
use std::{fs, io};

/// Writes the lists again.
pub(crate) fn semantics() -> io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let package = workspace.join("crates/completion-port");
    let path = package.join("docs/SEMANTICS.md");
    let page = fs::read_to_string(&path)?;
    let made = claims::generate(&page, &claims::claims(&package)?).map_err(io::Error::other)?;
    if made != page {
        fs::write(&path, made)?;
    }
    Ok(())
}
