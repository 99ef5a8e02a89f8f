//! The claims of this folder, which name their rules, and the list of tests in `docs/TESTS.txt`, which is generated
//! from them. `cargo xtask semantics` compiles this file too, and writes the list.

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

/// The claims of the package in `root`: module after module by name, and within a module in the order of the source.
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

/// The number of the rule that a line is the heading of, as `### 7. Exact waits`.
pub(crate) fn rule_of(line: &str) -> Option<u32> {
    line.strip_prefix("### ")?.split_once(". ")?.0.parse().ok()
}

/// What the list of tests begins with.
const INTRODUCTION: &str = "\
The tests of each rule of SEMANTICS.md, as file::function in tests/conformance.
`cargo xtask semantics` writes this file.

A test runs on each back end unless its name ends in one. `once` and `sim_once` are
epoll as a one-shot reactor, `sim_notifications` is simulated notifications.
";

/// The list of tests for the rules of a page. Fails if a claim names no rule, or one that has no heading.
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
    let mut made = INTRODUCTION.to_owned();
    for line in page.lines() {
        let Some(rule) = rule_of(line) else { continue };
        made.extend(["\n", line.trim_start_matches("### "), "\n"]);
        for claim in claims.iter().filter(|claim| claim.rules.contains(&rule)) {
            made.extend(["  ", &claim.name, "\n"]);
        }
    }
    Ok(made)
}
