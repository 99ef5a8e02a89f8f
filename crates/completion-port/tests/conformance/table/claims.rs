//! The claims of this folder, which name their rules, and the column of `docs/SEMANTICS.md` that is made of
//! them. `cargo xtask semantics` compiles this file as well, and writes the column.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// A test, and what it proves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// As `module::claim`.
    pub(crate) name: String,
    /// The rules that its documentation begins with.
    pub(crate) rules: Vec<u32>,
}

/// The numbers at the beginning of `Rule 7: ...`, `Rule 7.`, `Rule 7, where ...`, `Rules 4, 7 and 39: ...`;
/// none if it begins otherwise.
fn rules_of(documentation: &str) -> Vec<u32> {
    let mut words = documentation.split_whitespace();
    if !matches!(words.next(), Some("Rule" | "Rules")) {
        return Vec::new();
    }
    words
        .filter(|word| *word != "and")
        .map_while(|word| word.trim_end_matches([',', ':', '.']).parse().ok())
        .collect()
}

/// The claims of a module.
pub(crate) fn claims_of(module: &str, source: &str) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut documentation = String::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            documentation.push_str(text.trim());
            documentation.push(' ');
            continue;
        }
        if line.starts_with("#[") {
            is_test |= line == "#[test]";
            continue;
        }
        if let Some(rest) = line.strip_prefix("fn ") {
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // A claim of `on_every_system!` takes the system, one of `detection` the rung, a plain
            // test nothing.
            let arguments = ["(system: &System)", "(rung: &Rung<'_>)"];
            let is_claim = arguments.iter().any(|arguments| rest.contains(arguments));
            // A macro's own tests have no name before it is used.
            if (is_claim && line.ends_with('{') || is_test) && !name.is_empty() {
                let rules = rules_of(&documentation);
                claims.push(Claim { name: format!("{module}::{name}"), rules });
            }
            is_test = false;
        }
        documentation.clear();
    }
    claims
}

/// The claims of the package in `root`: module after module by name, and within a module as they stand there.
pub(crate) fn claims(root: &Path) -> io::Result<Vec<Claim>> {
    let mut modules = BTreeMap::new();
    for entry in fs::read_dir(root.join("tests/conformance"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_source = path.extension().is_some_and(|ending| ending == "rs");
        if is_source && !["main", "table", "kit"].contains(&name.as_str()) {
            modules.insert(name, fs::read_to_string(path)?);
        }
    }
    Ok(modules.iter().flat_map(|(name, source)| claims_of(name, source)).collect())
}

/// The number of the rule that a line of the paper is the row of. The rows of the C library have none.
pub(crate) fn rule_of(line: &str) -> Option<u32> {
    line.strip_prefix('|')?.split('|').next()?.trim().parse().ok()
}

/// The paper with its last column made anew. Fails if a claim names no rule, or one that has no row.
pub(crate) fn generate(paper: &str, claims: &[Claim]) -> Result<String, String> {
    let rows: BTreeSet<u32> = paper.lines().filter_map(rule_of).collect();
    for claim in claims {
        if claim.rules.is_empty() {
            return Err(format!(
                "the documentation of `{}` does not begin with its rule",
                claim.name
            ));
        }
        if let Some(rule) = claim.rules.iter().find(|rule| !rows.contains(rule)) {
            return Err(format!("`{}` names rule {rule}, which has no row", claim.name));
        }
    }
    let mut made = String::new();
    for line in paper.lines() {
        let columns = line.trim_end().strip_suffix('|').and_then(|row| row.rsplit_once('|'));
        match (rule_of(line), columns) {
            (Some(rule), Some((others, _))) => {
                let names = claims.iter().filter(|claim| claim.rules.contains(&rule));
                let names: Vec<_> = names.map(|claim| format!("`{}`", claim.name)).collect();
                made.push_str(&format!("{others}| {} |", names.join(", ")));
            }
            _ => made.push_str(line),
        }
        made.push('\n');
    }
    Ok(made)
}
