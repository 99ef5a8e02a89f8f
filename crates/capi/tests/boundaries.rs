//! Which file of `src` may import which. The layers are drawn in `lib.rs`; the list below says the same file by
//! file, and these tests compare it with the sources.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each file and what it imports of this crate, lowest layer first.
const LAYERS: [(&str, &[&str]); 32] = [
    ("abi", &[]),
    ("errors", &[]),
    ("foreign", &[]),
    ("messages", &[]),
    ("process", &[]),
    ("status", &["errors"]),
    ("descriptors", &["errors"]),
    ("numbers", &["abi", "descriptors", "process"]),
    ("port", &["abi", "errors", "numbers"]),
    ("driver", &["errors", "numbers", "port", "process"]),
    ("file", &["process"]),
    ("handles", &["abi", "errors", "file", "foreign", "port", "process"]),
    ("opening", &["abi", "errors", "file", "handles", "status"]),
    ("registrations", &["descriptors", "driver", "errors", "handles", "numbers", "port"]),
    ("closing", &["numbers"]),
    ("objects", &["abi", "errors", "foreign", "handles"]),
    ("waits", &["objects"]),
    ("flights", &["abi", "errors", "file", "foreign", "port", "process", "status", "waits"]),
    ("controls", &["errors", "objects", "process"]),
    (
        "queue",
        &[
            "abi",
            "descriptors",
            "driver",
            "errors",
            "file",
            "flights",
            "handles",
            "numbers",
            "port",
            "registrations",
            "status",
        ],
    ),
    (
        "notifications",
        &["abi", "descriptors", "driver", "errors", "handles", "numbers", "port", "registrations"],
    ),
    ("sockets", &["descriptors", "errors", "numbers", "registrations", "status"]),
    ("buffers", &["descriptors", "errors", "sockets"]),
    (
        "operations",
        &[
            "abi",
            "descriptors",
            "driver",
            "errors",
            "flights",
            "foreign",
            "handles",
            "numbers",
            "port",
            "registrations",
            "status",
            "waits",
        ],
    ),
    (
        "transfers",
        &["abi", "buffers", "descriptors", "errors", "operations", "port", "sockets", "status"],
    ),
    (
        "results",
        &[
            "abi",
            "descriptors",
            "errors",
            "numbers",
            "objects",
            "operations",
            "port",
            "status",
            "waits",
        ],
    ),
    (
        "connections",
        &[
            "abi",
            "descriptors",
            "errors",
            "numbers",
            "operations",
            "port",
            "registrations",
            "sockets",
            "transfers",
        ],
    ),
    (
        "transmit",
        &[
            "abi",
            "connections",
            "descriptors",
            "errors",
            "file",
            "flights",
            "handles",
            "operations",
            "port",
            "status",
            "transfers",
        ],
    ),
    (
        "files",
        &[
            "abi",
            "descriptors",
            "errors",
            "file",
            "flights",
            "foreign",
            "handles",
            "operations",
            "port",
            "sockets",
            "status",
            "transfers",
        ],
    ),
    ("extensions", &["connections", "errors", "transmit"]),
    (
        "callbacks",
        &["abi", "driver", "errors", "handles", "objects", "port", "process", "queue", "status"],
    ),
    (
        "modules",
        &["connections", "errors", "notifications", "operations", "queue", "sockets", "transmit"],
    ),
];

type Imports = BTreeMap<String, BTreeSet<String>>;

fn listed() -> Imports {
    let set = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
    LAYERS.into_iter().map(|(file, names)| (file.to_owned(), set(names))).collect()
}

/// The text without comments.
fn code(text: &str) -> String {
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    code.join("\n")
}

/// The files of `src` but for the root: name and code.
fn sources() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        assert!(path.is_file(), "{}: folders are not known to this test", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, code(&fs::read_to_string(path).unwrap()))
    };
    paths.map(read).filter(|(name, _)| name != "lib").collect()
}

fn is_of_a_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Where `word` stands in the code by itself: what is before it, and what is behind.
fn uses<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    code.match_indices(word).map(move |(at, _)| (&code[..at], &code[at + word.len()..])).filter(
        |(before, after)| !before.ends_with(is_of_a_word) && !after.starts_with(is_of_a_word),
    )
}

/// The first name of each part of `{a, b::{c, d}, e as f}`.
fn names_in_braces(list: &str) -> BTreeSet<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut depth = 0;
    for letter in list.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if letter == ',' && depth == 1 {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(letter);
        }
    }
    parts.push(part);
    let first = |part: &String| {
        let part = part.trim_start_matches('{').trim();
        part.split([':', ' ']).next().unwrap().to_owned()
    };
    // Behind a last comma there is nothing.
    parts.iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// The files that the code of `file` imports from, or the fault in how it does so.
fn imports(file: &str, code: &str) -> Result<BTreeSet<String>, String> {
    let mut all = BTreeSet::new();
    for (before, after) in uses(code, "crate") {
        if before.ends_with("pub(") && after.starts_with(')') {
            continue;
        }
        let Some(path) = after.strip_prefix("::") else {
            return Err(format!("{file} names the crate itself"));
        };
        let names = if path.starts_with('{') {
            names_in_braces(path)
        } else {
            BTreeSet::from([path.split(|it| !is_of_a_word(it)).next().unwrap().to_owned()])
        };
        all.extend(names);
    }
    for (before, after) in uses(code, "super") {
        // Of a module within the file: it stands further to the right than the file's own lines.
        if !(before.ends_with("    use ") && after.starts_with("::*;")) {
            return Err(format!("{file} names another file by `super`"));
        }
    }
    if all.iter().any(|name| name.is_empty() || matches!(&**name, "self" | "*")) {
        return Err(format!("{file} imports the whole crate"));
    }
    all.remove(file);
    Ok(all)
}

fn imported() -> Imports {
    let read = |(file, code): (String, String)| {
        let names = imports(&file, &code).unwrap_or_else(|fault| panic!("{fault}"));
        (file, names)
    };
    sources().into_iter().map(read).collect()
}

/// Files that import each other in a circle, if there are any.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    fn from(
        file: &String,
        imports: &Imports,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if let Some(at) = path.iter().position(|it| it == file) {
            path.drain(..at);
            return true;
        }
        if done.contains(file) {
            return false;
        }
        path.push(file.clone());
        for next in imports.get(file).into_iter().flatten() {
            if from(next, imports, path, done) {
                return true;
            }
        }
        path.pop();
        done.insert(file.clone());
        false
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|file| {
        let mut path = Vec::new();
        from(file, imports, &mut path, &mut done).then_some(path)
    })
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    assert_eq!(circle(&imported()), None);
}

#[test]
fn each_file_imports_what_is_listed_and_nothing_else() {
    let (listed, imported) = (listed(), imported());
    let files = |imports: &Imports| imports.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(files(&listed), files(&imported), "the files that are listed, and those of src");
    for (file, names) in &imported {
        let allowed = &listed[file];
        let more: Vec<_> = names.difference(allowed).collect();
        assert!(more.is_empty(), "{file} must not import {more:?}");
        let fewer: Vec<_> = allowed.difference(names).collect();
        assert!(fewer.is_empty(), "{file} does not import {fewer:?} any more: strike it out");
    }
}

#[test]
fn the_list_imports_downwards() {
    let mut below = BTreeSet::new();
    for (file, names) in LAYERS {
        let unknown: Vec<_> = names.iter().filter(|name| !below.contains(*name)).collect();
        assert!(unknown.is_empty(), "{file} imports {unknown:?}, which is not listed above it");
        assert!(below.insert(file), "{file} is listed twice");
    }
}

/// So no name comes to a file by way of the root.
#[test]
fn the_root_has_nothing_but_modules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let code = code(&fs::read_to_string(root).unwrap());
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let module = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ");
        assert!(module.is_some_and(|it| it.ends_with(';')), "lib.rs has {line:?}");
    }
}

#[test]
fn a_circle_is_found_wherever_it_begins() {
    let graph = |edges: &[(&str, &[&str])]| -> Imports {
        let set = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
        edges.iter().map(|(file, names)| ((*file).to_owned(), set(names))).collect()
    };
    assert_eq!(circle(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
    let path = |names: [&str; 2]| Some(names.map(str::to_owned).to_vec());
    assert_eq!(circle(&graph(&[("a", &["b"]), ("b", &["a"])])), path(["a", "b"]));
    let behind = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["c"])]);
    assert_eq!(circle(&behind), path(["c", "d"]));
}

#[test]
fn an_import_is_seen_in_every_form() {
    let of = |text: &str| imports("own", &code(text)).map(|it| it.into_iter().collect::<Vec<_>>());
    let is = |names: &[&str]| Ok(names.iter().copied().map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(of("use crate::a::{self, B};\nuse crate::c;\n"), is(&["a", "c"]));
    assert_eq!(
        of("use crate::{a, b::{C, d::E},\n    f as g};\nuse std::{h, i};"),
        is(&["a", "b", "f"])
    );
    assert_eq!(of("fn f() -> crate::a::B { crate::c::d(crate::own::E) }"), is(&["a", "c"]));
    assert_eq!(
        of("pub(crate) fn crates() {} // crate::a\nmod tests {\n    use super::*;\n}"),
        is(&[])
    );
    assert_eq!(of("pub(in crate::a) fn f() {}"), is(&["a"]));
    for refused in
        ["use super::a;", "use super::*;", "fn f() { super::a::b() }", "    use super::super::a;"]
    {
        assert!(of(refused).is_err(), "{refused}");
    }
    for refused in
        ["use crate as a;", "use crate::*;", "use crate::{self, a};", "use crate::{a, *};"]
    {
        assert!(of(refused).is_err(), "{refused}");
    }
}
