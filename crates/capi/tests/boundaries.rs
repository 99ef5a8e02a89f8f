//! Which file of `src` may import which. `lib.rs` shows the layers; the list below has the same for
//! each file, and these tests compare it with the sources.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each file and its imports from this crate, lowest layer first.
const LAYERS: [(&str, &[&str]); 90] = [
    ("abi", &[]),
    ("linux", &[]),
    ("linux/fetches", &[]),
    ("linux/foreign", &[]),
    ("linux/last", &[]),
    ("linux/pool_size", &[]),
    ("linux/later", &[]),
    ("linux/memory", &[]),
    ("linux/messages", &[]),
    ("linux/process", &[]),
    ("linux/protocols", &[]),
    ("linux/addresses", &[]),
    ("linux/spare_memory", &[]),
    ("windows", &[]),
    ("windows/last", &[]),
    ("windows/message", &[]),
    ("errors", &["linux/last", "windows/last"]),
    ("linux/mapping", &["errors"]),
    ("linux/errno", &["errors"]),
    ("linux/descriptors", &["errors", "linux/errno"]),
    ("linux/choices", &["linux/descriptors"]),
    ("requests", &["abi", "errors"]),
    ("table", &["abi", "errors"]),
    ("taking", &["abi", "errors"]),
    ("windows/relay", &["errors", "windows/last", "windows/message"]),
    ("windows/sockets", &["errors"]),
    ("windows/status", &["errors"]),
    ("linux/receiver", &["abi"]),
    (
        "linux/numbers",
        &[
            "linux/addresses",
            "linux/choices",
            "linux/descriptors",
            "linux/later",
            "linux/process",
            "linux/receiver",
            "linux/spare_memory",
            "requests",
        ],
    ),
    ("linux/resolving", &["errors", "linux/errno"]),
    ("linux/status", &["errors", "linux/errno"]),
    (
        "windows/port",
        &["abi", "errors", "taking", "windows/message", "windows/relay", "windows/sockets"],
    ),
    ("linux/closing", &["linux/numbers"]),
    ("linux/port", &["abi", "errors", "linux/numbers", "linux/receiver", "taking"]),
    ("windows/object", &["table", "windows/port"]),
    ("windows/waiting", &["abi", "taking", "windows/port"]),
    ("linux/driver", &["errors", "linux/numbers", "linux/port", "linux/process"]),
    ("linux/waiting", &["abi", "linux/driver", "linux/port", "taking"]),
    ("linux/waiting_calls", &["errors", "linux/descriptors", "linux/numbers"]),
    ("linux/words", &["abi", "errors"]),
    ("linux/controls", &["errors", "linux/process", "linux/words"]),
    ("linux/waits", &["abi", "linux/words"]),
    ("linux/waitable", &["errors", "linux/port", "linux/process", "linux/waits", "linux/words"]),
    (
        "linux/file",
        &["linux/addresses", "linux/errno", "linux/later", "linux/process", "linux/waitable"],
    ),
    ("linux/registered", &["errors", "linux/driver", "linux/waitable"]),
    (
        "linux/object",
        &[
            "abi",
            "linux/file",
            "linux/foreign",
            "linux/mapping",
            "linux/port",
            "linux/process",
            "linux/registered",
            "linux/waitable",
            "table",
        ],
    ),
    ("handles", &["abi", "errors", "linux/object", "linux/port", "windows/object", "windows/port"]),
    (
        "linux/objects",
        &[
            "abi",
            "errors",
            "handles",
            "linux/foreign",
            "linux/object",
            "linux/registered",
            "linux/waitable",
            "linux/words",
            "table",
        ],
    ),
    (
        "linux/named",
        &["abi", "errors", "handles", "linux/object", "linux/process", "linux/waitable"],
    ),
    (
        "linux/opening",
        &["abi", "errors", "handles", "linux/errno", "linux/file", "linux/object", "linux/status"],
    ),
    (
        "linux/facts",
        &["abi", "errors", "linux/file", "linux/object", "linux/opening", "linux/status"],
    ),
    (
        "linux/views",
        &[
            "abi",
            "errors",
            "handles",
            "linux/file",
            "linux/mapping",
            "linux/object",
            "linux/process",
            "linux/status",
        ],
    ),
    (
        "linux/registrations",
        &[
            "errors",
            "handles",
            "linux/descriptors",
            "linux/driver",
            "linux/numbers",
            "linux/port",
            "linux/receiver",
            "linux/status",
            "linux/waits",
        ],
    ),
    ("notifications", &["abi", "errors", "handles", "linux/waiting", "taking", "windows/waiting"]),
    ("windows/associations", &["abi", "handles", "table", "windows/last", "windows/port"]),
    ("windows/blocking", &["abi", "handles"]),
    (
        "windows/changes",
        &["abi", "errors", "handles", "requests", "windows/port", "windows/sockets"],
    ),
    ("windows/closing", &["errors", "handles", "windows/sockets"]),
    (
        "linux/changes",
        &[
            "abi",
            "errors",
            "handles",
            "linux/descriptors",
            "linux/numbers",
            "linux/port",
            "linux/registrations",
            "requests",
        ],
    ),
    ("linux/sharing", &["linux/choices", "linux/descriptors", "linux/numbers", "linux/process"]),
    (
        "linux/selecting",
        &["errors", "linux/descriptors", "linux/memory", "linux/numbers", "linux/process"],
    ),
    (
        "linux/sockets",
        &[
            "errors",
            "linux/descriptors",
            "linux/errno",
            "linux/memory",
            "linux/numbers",
            "linux/registrations",
            "linux/selecting",
            "linux/sharing",
            "linux/status",
            "linux/waiting_calls",
        ],
    ),
    (
        "linux/options",
        &[
            "linux/descriptors",
            "linux/errno",
            "linux/memory",
            "linux/numbers",
            "linux/protocols",
            "linux/sharing",
            "linux/sockets",
        ],
    ),
    ("windows/names", &["abi", "notifications"]),
    ("linux/buffers", &["errors", "linux/descriptors", "linux/memory", "linux/sockets"]),
    ("linux/ioctls", &["linux/descriptors", "linux/memory", "linux/numbers", "linux/sockets"]),
    (
        "linux/file_operations",
        &[
            "abi",
            "errors",
            "handles",
            "linux/errno",
            "linux/fetches",
            "linux/file",
            "linux/later",
            "linux/port",
            "linux/process",
            "linux/status",
            "linux/waitable",
            "linux/waits",
        ],
    ),
    (
        "linux/associations",
        &[
            "abi",
            "errors",
            "handles",
            "linux/descriptors",
            "linux/driver",
            "linux/file",
            "linux/file_operations",
            "linux/last",
            "linux/numbers",
            "linux/object",
            "linux/port",
            "linux/registrations",
            "linux/sockets",
        ],
    ),
    (
        "linux/numbered",
        &[
            "abi",
            "errors",
            "handles",
            "linux/associations",
            "linux/file",
            "linux/object",
            "linux/process",
        ],
    ),
    (
        "linux/receiving",
        &[
            "linux/driver",
            "linux/errno",
            "linux/numbers",
            "linux/port",
            "linux/receiver",
            "linux/registrations",
            "linux/sockets",
            "linux/status",
            "linux/waits",
        ],
    ),
    (
        "linux/shutting",
        &[
            "linux/descriptors",
            "linux/driver",
            "linux/errno",
            "linux/numbers",
            "linux/port",
            "linux/registrations",
            "linux/sockets",
        ],
    ),
    (
        "linux/operations",
        &[
            "abi",
            "errors",
            "handles",
            "linux/descriptors",
            "linux/driver",
            "linux/errno",
            "linux/file_operations",
            "linux/later",
            "linux/numbers",
            "linux/object",
            "linux/port",
            "linux/registrations",
            "linux/spare_memory",
            "linux/status",
            "linux/waitable",
            "linux/waits",
            "requests",
        ],
    ),
    (
        "linux/starting",
        &[
            "abi",
            "errors",
            "handles",
            "linux/driver",
            "linux/errno",
            "linux/memory",
            "linux/numbers",
            "linux/object",
            "linux/operations",
            "linux/port",
            "linux/receiver",
            "linux/receiving",
            "linux/registrations",
            "linux/status",
            "linux/waitable",
            "linux/waits",
        ],
    ),
    (
        "linux/instants",
        &[
            "abi",
            "errors",
            "handles",
            "linux/memory",
            "linux/numbers",
            "linux/object",
            "linux/operations",
            "linux/status",
            "linux/waits",
        ],
    ),
    (
        "linux/cancelling",
        &[
            "abi",
            "errors",
            "linux/file_operations",
            "linux/numbers",
            "linux/object",
            "linux/operations",
            "linux/registrations",
            "linux/waits",
        ],
    ),
    (
        "linux/callbacks",
        &[
            "abi",
            "errors",
            "handles",
            "linux/associations",
            "linux/pool_size",
            "linux/descriptors",
            "linux/driver",
            "linux/numbers",
            "linux/object",
            "linux/process",
            "linux/status",
            "linux/waiting",
            "linux/words",
            "taking",
        ],
    ),
    ("linux/pool_work", &["errors", "linux/callbacks", "linux/words"]),
    (
        "linux/results",
        &[
            "abi",
            "errors",
            "linux/descriptors",
            "linux/numbers",
            "linux/object",
            "linux/operations",
            "linux/port",
            "linux/status",
            "linux/waitable",
            "linux/waits",
        ],
    ),
    (
        "linux/transfers",
        &[
            "abi",
            "errors",
            "linux/buffers",
            "linux/descriptors",
            "linux/errno",
            "linux/memory",
            "linux/numbers",
            "linux/operations",
            "linux/options",
            "linux/port",
            "linux/receiving",
            "linux/sockets",
            "linux/starting",
            "linux/status",
        ],
    ),
    (
        "linux/datagrams",
        &[
            "abi",
            "errors",
            "linux/buffers",
            "linux/descriptors",
            "linux/errno",
            "linux/memory",
            "linux/operations",
            "linux/port",
            "linux/sockets",
            "linux/starting",
            "linux/transfers",
        ],
    ),
    (
        "queue",
        &[
            "abi",
            "errors",
            "handles",
            "linux/associations",
            "linux/status",
            "linux/waiting",
            "taking",
            "windows/associations",
            "windows/status",
            "windows/waiting",
        ],
    ),
    (
        "linux/connections",
        &[
            "abi",
            "errors",
            "linux/descriptors",
            "linux/errno",
            "linux/memory",
            "linux/numbers",
            "linux/operations",
            "linux/port",
            "linux/registrations",
            "linux/sharing",
            "linux/sockets",
            "linux/starting",
            "linux/transfers",
        ],
    ),
    (
        "linux/lingering",
        &[
            "linux/connections",
            "linux/descriptors",
            "linux/driver",
            "linux/process",
            "linux/sockets",
        ],
    ),
    (
        "linux/disconnects",
        &[
            "abi",
            "errors",
            "linux/connections",
            "linux/descriptors",
            "linux/errno",
            "linux/lingering",
            "linux/numbers",
            "linux/operations",
            "linux/port",
            "linux/sockets",
            "linux/starting",
        ],
    ),
    (
        "linux/files",
        &[
            "abi",
            "errors",
            "handles",
            "linux/descriptors",
            "linux/file",
            "linux/file_operations",
            "linux/object",
            "linux/operations",
            "linux/port",
            "linux/sockets",
            "linux/starting",
            "linux/status",
            "linux/transfers",
        ],
    ),
    (
        "linux/transmit",
        &[
            "abi",
            "errors",
            "linux/connections",
            "linux/descriptors",
            "linux/disconnects",
            "linux/errno",
            "linux/fetches",
            "linux/file",
            "linux/file_operations",
            "linux/memory",
            "linux/numbers",
            "linux/object",
            "linux/operations",
            "linux/port",
            "linux/starting",
            "linux/status",
            "linux/transfers",
            "linux/waiting_calls",
        ],
    ),
    (
        "linux/extensions",
        &["errors", "linux/connections", "linux/datagrams", "linux/disconnects", "linux/transmit"],
    ),
    (
        "linux/modules",
        &[
            "errors",
            "linux/callbacks",
            "linux/cancelling",
            "linux/connections",
            "linux/datagrams",
            "linux/operations",
            "linux/sockets",
            "linux/transmit",
            "notifications",
            "queue",
        ],
    ),
    (
        "linux/starting_tests",
        &[
            "abi",
            "errors",
            "linux/descriptors",
            "linux/numbers",
            "linux/operations",
            "linux/port",
            "linux/registrations",
            "linux/starting",
            "linux/status",
        ],
    ),
    (
        "linux/receiving_tests",
        &[
            "abi",
            "errors",
            "handles",
            "linux/associations",
            "linux/buffers",
            "linux/cancelling",
            "linux/last",
            "linux/numbers",
            "linux/operations",
            "linux/port",
            "linux/receiver",
            "linux/receiving",
            "linux/status",
            "linux/transfers",
            "linux/waiting",
            "taking",
        ],
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

/// What the files above the folders of systems know either of them by.
const SYSTEM: &str = "system";

/// The folders of systems.
const SYSTEMS: [&str; 2] = ["linux", "windows"];

fn files_in(folder: &str) -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
}

/// The files of `src` except the root, and those of its folders: name and code. A folder's own file
/// has the folder's name.
fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for folder in ["", "linux", "windows"] {
        for path in files_in(folder) {
            let name = match (folder, path.file_stem().unwrap().to_str().unwrap()) {
                ("", name) => name.to_owned(),
                (folder, "mod") => folder.to_owned(),
                (folder, name) => format!("{folder}/{name}"),
            };
            sources.push((name, code(&fs::read_to_string(path).unwrap())));
        }
    }
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let folders = folders.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(folders, SYSTEMS.len(), "this test knows no other folders");
    sources.retain(|(name, _)| name != "lib");
    sources
}

fn is_of_a_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The occurrences of `word` in the code: the text before and after each.
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
    // Nothing follows a last comma.
    parts.iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// The first names of a path, or of the list in braces that replaces it.
fn names_at(path: &str) -> BTreeSet<String> {
    if path.starts_with('{') {
        return names_in_braces(path);
    }
    BTreeSet::from([path.split(|it| !is_of_a_word(it)).next().unwrap().to_owned()])
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
        let names = names_at(path);
        let is_system = |name: &String| name == SYSTEM || SYSTEMS.contains(&&**name);
        if path.starts_with('{') && names.iter().any(is_system) {
            return Err(format!("{file} names a system among other things"));
        }
        for name in names {
            let systems: &[&str] = if name == SYSTEM { &SYSTEMS } else { &[&*name] };
            match path.strip_prefix(&*name).and_then(|rest| rest.strip_prefix("::")) {
                Some(rest) if is_system(&name) => {
                    for system in systems {
                        all.extend(names_at(rest).iter().map(|inner| format!("{system}/{inner}")));
                    }
                }
                _ => drop(all.insert(name)),
            }
        }
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

/// So no name comes to a file by way of the root, and no other file names a system.
#[test]
fn the_root_has_nothing_but_modules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let code = code(&fs::read_to_string(root).unwrap());
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let module = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ");
        let is_system = SYSTEMS.iter().any(|system| {
            [format!("#[cfg(target_os = \"{system}\")]"), format!("use {system} as {SYSTEM};")]
                .iter()
                .any(|known| known == line)
        });
        assert!(is_system || module.is_some_and(|it| it.ends_with(';')), "lib.rs has {line:?}");
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
    assert_eq!(
        of(
            "use crate::linux::a::B;\nuse crate::linux::{c, d::E};\nfn f() -> crate::windows::g::H {}"
        ),
        is(&["linux/a", "linux/c", "linux/d", "windows/g"])
    );
    assert_eq!(of("use crate::system::a::{self, B};"), is(&["linux/a", "windows/a"]));
    assert!(of("use crate::{a, linux::b};").is_err());
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
