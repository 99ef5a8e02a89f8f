//! `docs/SEMANTICS.md` and the claims in this folder agree.

mod claims;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use claims::{Claim, claims, claims_of, generate, rule_of};

/// The rules, by number. Each of those of the reference about overlapped operations is several others here.
const RULES: std::ops::RangeInclusive<u32> = 1..=74;
const SPLIT: std::ops::RangeInclusive<u32> = 41..=44;
/// Numbers of rules that no longer hold, which are not used again.
const GONE: [u32; 1] = [66];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn paper() -> String {
    fs::read_to_string(root().join("docs/SEMANTICS.md")).unwrap()
}

struct Row {
    rule: u32,
    claims: Vec<String>,
}

/// The rows of the table: number, ..., claims in back-quotes in the last column.
fn rows() -> Vec<Row> {
    let row = |line: &str| {
        let last = line.trim().trim_matches('|').rsplit('|').next()?;
        let claims = last.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some(Row { rule: rule_of(line)?, claims })
    };
    paper().lines().filter_map(row).collect()
}

#[test]
fn every_rule_has_one_row_with_a_claim() {
    let rows = rows();
    for rule in RULES.filter(|rule| !SPLIT.contains(rule) && !GONE.contains(rule)) {
        let named: Vec<_> = rows.iter().filter(|row| row.rule == rule).collect();
        assert_eq!(named.len(), 1, "rows of rule {rule} in docs/SEMANTICS.md");
        assert!(!named[0].claims.is_empty(), "no test names rule {rule} of docs/SEMANTICS.md");
    }
}

#[test]
fn a_rule_that_is_gone_is_said_to_be() {
    let (paper, rows) = (paper(), rows());
    for rule in GONE {
        assert!(paper.contains(&format!("\nRule {rule} is gone: ")), "rule {rule}");
        assert!(rows.iter().all(|row| row.rule != rule), "rule {rule} has a row");
    }
}

#[test]
fn the_rules_of_the_reference_that_are_split_up_say_into_which() {
    let (paper, rules) = (paper(), rows());
    for split in SPLIT {
        let row = paper.lines().find(|line| line.starts_with(&format!("| rule {split} |")));
        let cells: Vec<_> = row.expect("each has a row").split('|').map(str::trim).collect();
        let [.., here, in_c, ""] = cells[..] else { panic!("{cells:?}") };
        let numbers: Vec<u32> =
            here.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).collect();
        assert!(numbers.len() > 1, "{here}");
        for rule in numbers {
            assert!(
                rules.iter().any(|row| row.rule == rule),
                "rule {rule}, into which {split} is split"
            );
        }
        assert_eq!(in_c, format!("C {split}"));
        assert!(paper.contains(&format!("\n| {in_c} |")), "{in_c} has no row");
    }
}

#[test]
fn every_claim_that_the_table_names_exists() {
    let claims: BTreeSet<_> = claims(root()).unwrap().into_iter().map(|claim| claim.name).collect();
    assert!(claims.len() > 40, "the claims were not found");
    for row in rows() {
        for claim in row.claims {
            assert!(claims.contains(&claim), "rule {}: there is no test `{claim}`", row.rule);
        }
    }
}

#[test]
fn every_claim_belongs_to_a_rule() {
    let named: BTreeSet<_> = rows().into_iter().flat_map(|row| row.claims).collect();
    for claim in claims(root()).unwrap() {
        let name = claim.name;
        assert!(named.contains(&name), "`{name}` stands in no row of docs/SEMANTICS.md");
    }
}

#[test]
fn the_table_has_the_rules_that_the_claims_name() {
    let made = generate(&paper(), &claims(root()).unwrap()).unwrap();
    for (line, wanted) in paper().lines().zip(made.lines()) {
        assert_eq!(line, wanted, "`cargo xtask semantics` writes the column of the tests anew");
    }
    assert_eq!(paper(), made);
}

/// The files below the folder `conformance`, as names of modules and sources.
fn sources(below: &str) -> Vec<(String, String)> {
    let files = fs::read_dir(root().join("tests/conformance").join(below)).unwrap();
    let sources = files.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let named = sources.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    named.collect()
}

/// The modules of this crate that a source names, each as the first two words of its path.
fn modules_named<'s>(source: &'s str) -> Vec<(&'s str, &'s str)> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let behind = |line, from| str::split(line, from).skip(1);
    let paths = code.flat_map(|line| behind(line, "crate::").chain(behind(line, "super::")));
    let words = |path: &'s str| {
        let mut words = path.split(|c: char| !c.is_alphanumeric() && c != '_');
        let module = words.next().unwrap_or_default();
        (module, words.find(|word| !word.is_empty()).unwrap_or_default())
    };
    paths.map(words).collect()
}

#[test]
fn claims_import_the_kit_and_no_other_claims() {
    let files = sources("");
    assert!(files.len() > 20, "the files of claims were not found");
    for (file, source) in files {
        for (module, _) in modules_named(&source) {
            // In the macros of `detection` `super` is the file itself.
            assert!(matches!(module, "kit" | ""), "{file}.rs imports {module}.rs");
        }
    }
}

/// In this order each module of the kit may import those before it.
const KIT: [&str; 11] = [
    "codes",
    "threads",
    "takers",
    "signals",
    "sockets",
    "packets",
    "descriptors",
    "ledger",
    "operations",
    "files",
    "crew",
];

#[test]
fn the_kit_has_an_order() {
    for (file, source) in sources("kit") {
        let place = |name: &str| KIT.iter().position(|module| *module == name);
        let own = place(&file).unwrap_or_else(|| panic!("kit/{file}.rs has no place in KIT"));
        for (module, part) in modules_named(&source) {
            assert_eq!(module, "kit", "kit/{file}.rs imports claims");
            assert!(place(part) < Some(own), "kit/{file}.rs imports kit/{part}.rs");
        }
    }
}

#[test]
fn a_claim_names_its_rules_at_the_beginning_of_its_documentation() {
    let rules = |documentation: &str| {
        let source =
            format!("/// {documentation}\n#[cfg(x)]\nfn f(system: &System) {{\n}}\nfn g() {{");
        let claims = claims_of("m", &source);
        assert_eq!(claims.len(), 1, "{documentation}");
        assert_eq!(claims[0].name, "m::f");
        claims[0].rules.clone()
    };
    assert_eq!(rules("Rule 7."), [7]);
    assert_eq!(rules("Rule 7: and so on, as rule 8 says."), [7]);
    assert_eq!(rules("Rule 7 (see also 4 and 39): and so on."), [7]);
    assert_eq!(rules("Rule 7, where 8 is not meant."), [7]);
    assert_eq!(rules("Rules 4, 7 and 39: and so on."), [4, 7, 39]);
    assert_eq!(rules("Rules 4 and\n/// 39: and so on."), [4, 39]);
    assert!(rules("As rule 7 says.").is_empty());
    assert!(rules("Rule seven.").is_empty());
}

#[test]
fn the_documentation_of_another_function_is_not_that_of_a_claim() {
    let claims = claims_of("m", "/// Rule 7.\nfn helper() {}\n\n#[test]\nfn f() {");
    assert_eq!(claims, [Claim { name: "m::f".to_owned(), rules: Vec::new() }]);
    assert!(generate("| 7 | a | b |\n", &claims).unwrap_err().contains("`m::f`"));
}

#[test]
fn only_the_last_column_is_made_anew() {
    let claim = |name: &str, rules: &[u32]| Claim { name: name.to_owned(), rules: rules.to_vec() };
    let claims = [claim("m::b", &[1]), claim("m::a", &[1, 2])];
    let paper = "# A\n| rule | tests |\n|---|---|\n| 1 | `x` | `m::old` |\n| 2 | y |  |\n| C 2 | z | `c.c` |\n";
    let made = "# A\n| rule | tests |\n|---|---|\n| 1 | `x` | `m::b`, `m::a` |\n| 2 | y | `m::a` |\n| C 2 | z | `c.c` |\n";
    assert_eq!(generate(paper, &claims).unwrap(), made);
    assert!(generate(paper, &[claim("m::a", &[3])]).unwrap_err().contains("rule 3"));
}
