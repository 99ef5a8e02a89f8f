//! The claims in this folder, which name their rules, and the lists of tests in
//! `docs/SEMANTICS.md`, which are generated from them. `cargo xtask semantics` also compiles this
//! file, and writes the lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// A test and the rules that it proves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// In the form `module::claim`.
    pub(crate) name: String,
    /// The rules at the beginning of its documentation.
    pub(crate) rules: Vec<u32>,
}

/// Returns the numbers at the beginning of `Rule 7: ...`, `Rule 7.`, `Rule 7, where ...` or `Rules
/// 4, 7 and 39: ...`. Any other text has none.
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

/// Returns the claims of a module.
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
            // A claim of `on_every_system!` takes the system, one of `detection` a `Rung`, and a
            // plain test nothing.
            let arguments = ["(system: &System)", "(rung: &Rung<'_>)"];
            let is_claim = arguments.iter().any(|arguments| rest.contains(arguments));
            // A macro's own tests have no name before the macro is used.
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

/// Returns the claims of the package in `root`, sorted by module, and within a module in source
/// order.
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

/// The line above a list of tests. The list ends at the next empty line.
pub(crate) const TESTS: &str = "Tests:";

/// The maximum length of a line of the page.
pub(crate) const COLUMNS: usize = 100;

/// Returns the number of the rule if the line is its heading, such as `### 7. Exact waits`.
pub(crate) fn rule_of(line: &str) -> Option<u32> {
    line.strip_prefix("### ")?.split_once(". ")?.0.parse().ok()
}

/// Returns the sections of the page: each heading with the lines below it. The first section has no
/// heading.
pub(crate) fn sections(page: &str) -> Vec<Vec<&str>> {
    let mut sections = vec![Vec::new()];
    for line in page.lines() {
        if line.starts_with('#') {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.push(line);
        }
    }
    sections
}

/// Returns the compact list of these claims, such as `` `call::{one,another}`, `tokens::one` ``, in
/// lines of [`COLUMNS`].
fn list(claims: &[&Claim]) -> String {
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for claim in claims {
        let (module, name) = claim.name.split_once("::").unwrap_or_default();
        modules.entry(module).or_default().push(name);
    }
    // A line may begin at each piece.
    let mut pieces = Vec::new();
    for (module, names) in modules {
        if let [name] = names[..] {
            pieces.push(format!("`{module}::{name}`, "));
            continue;
        }
        let start = format!("`{module}::{{");
        let mut rest = names.iter().map(|name| format!("{name},"));
        let first = rest.next().unwrap_or_default();
        if start.len() + first.len() <= COLUMNS {
            pieces.push(start + &first);
        } else {
            pieces.extend([start, first]);
        }
        pieces.extend(rest);
        if let Some(last) = pieces.last_mut() {
            last.pop();
            last.push_str("}`, ");
        }
    }
    let mut lines = vec![String::new()];
    for piece in pieces {
        let Some(line) = lines.last_mut() else { continue };
        if !line.is_empty() && line.len() + piece.trim_end().len() > COLUMNS {
            lines.push(piece);
        } else {
            line.push_str(&piece);
        }
    }
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n").trim_end_matches(',').to_owned()
}

/// Returns the page with its lists of tests generated again. Fails if a claim names no rule, or one
/// without a heading.
pub(crate) fn generate(page: &str, claims: &[Claim]) -> Result<String, String> {
    let rules: BTreeSet<u32> = page.lines().filter_map(rule_of).collect();
    for claim in claims {
        if claim.rules.is_empty() {
            return Err(format!(
                "the documentation of `{}` does not begin with its rule",
                claim.name
            ));
        }
        if let Some(rule) = claim.rules.iter().find(|rule| !rules.contains(rule)) {
            return Err(format!("`{}` names rule {rule}, which has no heading", claim.name));
        }
    }
    let mut made = String::new();
    for section in sections(page) {
        let Some(rule) = section.first().and_then(|line| rule_of(line)) else {
            section.iter().for_each(|line| made.extend([line, "\n"]));
            continue;
        };
        let (mut text, mut is_list) = (String::new(), false);
        for line in section {
            if line == TESTS {
                is_list = true;
            } else if is_list {
                is_list = !line.is_empty();
            } else {
                text.extend([line, "\n"]);
            }
        }
        made.push_str(text.trim_end());
        let proofs: Vec<_> = claims.iter().filter(|claim| claim.rules.contains(&rule)).collect();
        made.extend(["\n\n", TESTS, "\n", &list(&proofs), "\n\n"]);
    }
    made.truncate(made.trim_end().len());
    made.push('\n');
    Ok(made)
}
