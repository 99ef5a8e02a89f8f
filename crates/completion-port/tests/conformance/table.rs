//! `docs/SEMANTICS.md`, `docs/TESTS.txt` and the claims in this folder agree.

mod claims;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use claims::{Claim, claims, claims_of, generate, rule_of};

/// The rules, by number. Each of those of the reference about overlapped operations is several others here.
const RULES: std::ops::RangeInclusive<u32> = 1..=83;
/// Numbers that no rule has yet.
const UNUSED: [u32; 1] = [76];
const SPLIT: std::ops::RangeInclusive<u32> = 41..=44;
/// Numbers of removed rules, which are not used again.
const REMOVED: [u32; 1] = [66];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/SEMANTICS.md")).unwrap()
}

struct Rule {
    number: u32,
    /// Whether it says anything.
    has_text: bool,
}

/// The sections of the page: each heading with the lines below it. The first one has no heading.
fn sections(page: &str) -> Vec<Vec<&str>> {
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

/// The rules of a page: each has a heading and a text.
fn rules_of(page: &str) -> Vec<Rule> {
    let rule = |section: Vec<&str>| {
        let number = section.first().and_then(|line| rule_of(line))?;
        Some(Rule { number, has_text: !section[1..].concat().trim().is_empty() })
    };
    sections(page).into_iter().filter_map(rule).collect()
}

fn rules() -> Vec<Rule> {
    rules_of(&page())
}

#[test]
fn every_rule_has_one_heading_and_a_claim() {
    let rules = rules();
    let proven: BTreeSet<_> =
        claims(root()).unwrap().into_iter().flat_map(|claim| claim.rules).collect();
    assert!(proven.len() > 40, "the claims were not found");
    let without_text = |number: &u32| {
        SPLIT.contains(number) || REMOVED.contains(number) || UNUSED.contains(number)
    };
    for number in RULES.filter(|number| !without_text(number)) {
        let named: Vec<_> = rules.iter().filter(|rule| rule.number == number).collect();
        assert_eq!(named.len(), 1, "headings of rule {number} in docs/SEMANTICS.md");
        assert!(named[0].has_text, "rule {number} of docs/SEMANTICS.md says nothing");
        assert!(proven.contains(&number), "no test names rule {number} of docs/SEMANTICS.md");
    }
    for Rule { number, .. } in rules {
        let is_known = RULES.contains(&number) && !SPLIT.contains(&number);
        assert!(is_known, "rule {number} of docs/SEMANTICS.md is none of RULES");
    }
}

#[test]
fn the_page_says_which_rules_have_been_removed() {
    let (page, rules) = (page(), rules());
    for number in REMOVED {
        let sentence = format!("\nRule {number} has been removed: ");
        assert!(page.contains(&sentence), "rule {number}");
        assert!(rules.iter().all(|rule| rule.number != number), "rule {number} has a heading");
    }
}

/// The numbers in a text such as `here 50–52, 65; files 67`: 50, 51, 52, 65, 67.
fn numbers(text: &str) -> Vec<u32> {
    let is_of_range = |c: char| c.is_ascii_digit() || c == '–';
    let ranges = text.split(|c| !is_of_range(c)).filter(|range| !range.is_empty());
    let expanded = ranges.flat_map(|range| {
        let (first, last) = range.split_once('–').unwrap_or((range, range));
        first.parse().unwrap()..=last.parse().unwrap()
    });
    expanded.collect()
}

#[test]
fn the_rules_of_the_reference_that_are_split_up_say_into_which() {
    let (page, rules) = (page(), rules());
    for split in SPLIT {
        let start = format!("- Rule {split} (");
        let line = page.lines().find_map(|line| line.strip_prefix(&start));
        let (parts, _) = line.expect("each has an item").split_once("): ").unwrap();
        let (here, in_c) = parts.split_once("; in C: ").unwrap();
        let parts = numbers(here);
        assert!(parts.len() > 1, "{here}");
        for part in parts {
            let is_rule = rules.iter().any(|rule| rule.number == part);
            assert!(is_rule, "rule {part}, into which {split} is split");
        }
        assert_eq!(in_c, format!("C {split}"));
    }
    assert_eq!(numbers("here 50–52, 65; files 67"), [50, 51, 52, 65, 67]);
}

#[test]
fn the_list_of_tests_is_what_the_claims_make() {
    let made = generate(&page(), &claims(root()).unwrap()).unwrap();
    let list = fs::read_to_string(root().join("docs/TESTS.txt")).unwrap();
    for (line, wanted) in list.lines().zip(made.lines()) {
        assert_eq!(line, wanted, "`cargo xtask semantics` writes the list of tests");
    }
    assert_eq!(list, made);
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
    assert!(generate("### 7. a\n\nb\n", &claims).unwrap_err().contains("`m::f`"));
}

fn claim(name: &str, rules: &[u32]) -> Claim {
    Claim { name: name.to_owned(), rules: rules.to_vec() }
}

#[test]
fn each_rule_of_the_list_has_its_tests() {
    let claims = [claim("m::b", &[1]), claim("m::a", &[1, 2]), claim("n::c", &[2])];
    let page = "# A\n\n### 1. One\n\nx\n\n## B\n\n### 2. Two\n\n## C\n\n### Other\n\n- z\n";
    let made = generate(page, &claims).unwrap();
    let (_, rules) = made.split_once("\n\n1. ").unwrap();
    assert_eq!(rules, "One\n  m::b\n  m::a\n\n2. Two\n  m::a\n  n::c\n");
    assert!(generate(page, &[claim("m::a", &[3])]).unwrap_err().contains("rule 3"));
    let rules = rules_of(page);
    assert_eq!([rules[0].has_text, rules[1].has_text], [true, false]);
}
