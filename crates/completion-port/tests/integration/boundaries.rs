//! Who may import whom: the layers of ARCHITECTURE.md, checked in the sources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All sources below `folder` (or that one file), as path, with `/` on each system, and text without comments.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![source().join(folder)];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code: Vec<_> =
                text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
            let parts = path.strip_prefix(source()).unwrap().iter();
            let parts: Vec<_> = parts.map(|part| part.to_str().unwrap()).collect();
            found.push((parts.join("/"), code.join("\n")));
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

#[track_caller]
fn assert_absent(folder: &str, words: &[&str]) {
    for (name, code) in sources(folder) {
        for word in words {
            assert!(!code.contains(word), "{name} must not use `{word}`");
        }
    }
}

/// The modules of the crate. Each imports only from those before it.
const MODULES: [&str; 9] =
    ["sync", "types", "memory", "state", "backend", "engine", "sys", "sim", "port"];

/// The text before the unit tests of a file.
fn product(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

#[test]
fn the_modules_import_in_one_direction() {
    let place = |module: &str| MODULES.iter().position(|name| *name == module);
    let mut imports = 0;
    for (name, code) in sources("") {
        let (module, rest) = name.split_once('/').unwrap_or((&name, ""));
        // The root names all of them. Tests of a module may use the modules above it.
        if name == "lib.rs" || rest.split('/').any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let own = place(module).unwrap_or_else(|| panic!("{name} has no place in MODULES"));
        for path in product(&code).split("crate::").skip(1) {
            let imported = word_at_start(path);
            // What a port makes is a socket of the system or of the simulated kernel.
            if (name.as_str(), imported) == ("types/source.rs", "sim") {
                continue;
            }
            imports += 1;
            let place = place(imported)
                .unwrap_or_else(|| panic!("{name} imports `crate::{imported}` from the root"));
            assert!(place <= own, "{name} imports {imported}");
        }
    }
    assert!(imports > 100, "the imports were not found: {imports}");
}

#[test]
fn state_knows_no_system_no_clock_and_no_unsafe() {
    assert_absent("state", &["std::os", "libc", "Instant::now", "SystemTime", "unsafe"]);
}

#[test]
fn the_modules_of_a_slot_import_in_one_direction() {
    assert_absent("state/slot/report.rs", &["Word", "readiness::", "ownership::"]);
    assert_absent("state/slot/readiness.rs", &["ownership::"]);
}

#[test]
fn system_calls_are_made_below_sys_only() {
    for (name, code) in sources("") {
        let allowed = name.starts_with("sys/");
        assert!(allowed || !code.contains("libc::"), "{name} must not use libc");
        let allowed = name.starts_with("sys/windows/");
        assert!(allowed || !code.contains("windows_sys"), "{name} must not use windows-sys");
    }
}

/// Where there is no back end, each name that a system does not have would be an error of its own.
#[test]
fn what_not_every_system_has_is_named_in_the_folders_of_systems_only() {
    for (name, code) in sources("") {
        assert!(
            ["sys/linux/", "sys/bsd/", "sys/unix/", "sys/windows/"]
                .iter()
                .any(|folder| name.starts_with(folder))
                || name == "types/fd.rs"
                || !code.contains("std::os::"),
            "{name} must take it from `crate::types::fd`"
        );
    }
}

#[test]
fn the_engine_knows_neither_keys_nor_messages() {
    assert_absent("engine", &["memory::cells", "unsafe"]);
}

/// The files of the engine. Each may import from those before it and call what they define, and from no
/// other one.
const ENGINE: [&str; 25] = [
    // What there is: the engine, what its lock guards, a seat, what the back end has, what stands beside a slot.
    "mod",
    "seat",
    "delays",
    "outstanding",
    "faults",
    "desks",
    "aside",
    // One step of a thread that has the lock, or gives it up for that step.
    "sleep",
    "quota",
    "armings",
    "stage",
    "packets",
    "threads",
    "answer",
    "poll",
    "check",
    "operations",
    "files",
    "sockets",
    // What a caller asks for.
    "wait",
    "peek",
    "dispatch",
    "registrations",
    "end",
    "report",
];

fn place(file: &str) -> usize {
    let file = file.trim_start_matches("engine/").trim_end_matches(".rs");
    let place = ENGINE.iter().position(|name| *name == file);
    place.unwrap_or_else(|| panic!("{file} has no place in ENGINE"))
}

#[test]
fn the_files_of_the_engine_import_in_one_direction() {
    for (file, code) in sources("engine") {
        // The root names all of them, and gives out what others need.
        if file == "engine/mod.rs" {
            continue;
        }
        for path in code.split("super::").skip(1) {
            let module = word_at_start(path);
            if ENGINE.contains(&module) {
                assert!(place(module) < place(&file), "{file} imports {module}.rs");
            }
        }
    }
}

/// The methods of a file and the calls in them. Types are told by names: `self` is of the type of its
/// block, and the engine, the stock and a seat are called so wherever one calls a method of theirs.
#[derive(Default)]
struct Methods {
    /// As type and method.
    defined: Vec<(String, String)>,
    called: Vec<(String, String)>,
}

impl Methods {
    fn of(code: &str) -> Self {
        let mut methods = Self::default();
        let blocks = code.split("\nimpl").skip(1).map(|block| block.split("\n}").next().unwrap());
        for block in blocks {
            let (head, body) = block.split_once('{').unwrap();
            let (of_trait, name) = match head.split_once(" for ") {
                Some((_, name)) => (true, name),
                None => (false, head),
            };
            // Behind parameters of the block.
            let name = name.trim_start();
            let name = if name.starts_with('<') { name.split_once("> ").unwrap().1 } else { name };
            let own = word_at_start(name).to_owned();
            for method in body.split("\n    ").filter_map(|line| line.split("fn ").nth(1)) {
                if !of_trait {
                    methods.defined.push((own.clone(), word_at_start(method).to_owned()));
                }
            }
            let parts: Vec<_> = body.split('.').collect();
            for pair in parts.windows(2) {
                let method = word_at_start(pair[1].trim_start());
                let receiver = match word_at_end(pair[0].trim_end()) {
                    "self" => own.as_str(),
                    "engine" => "Engine",
                    "stock" => "Stock",
                    "seat" => "Seat",
                    _ => continue,
                };
                if pair[1].trim_start()[method.len()..].starts_with('(') {
                    methods.called.push((receiver.to_owned(), method.to_owned()));
                }
            }
        }
        methods
    }
}

fn is_of_a_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word_at_start(text: &str) -> &str {
    text.split(|c| !is_of_a_word(c)).next().unwrap()
}

fn word_at_end(text: &str) -> &str {
    text.rsplit(|c| !is_of_a_word(c)).next().unwrap()
}

#[test]
fn the_files_of_the_engine_call_in_one_direction() {
    let files: Vec<_> =
        sources("engine").into_iter().map(|(file, code)| (file, Methods::of(&code))).collect();
    let defined: HashMap<_, _> = files
        .iter()
        .flat_map(|(file, methods)| methods.defined.iter().map(move |method| (method, file)))
        .collect();
    let mut calls = 0;
    for (file, methods) in &files {
        for method in &methods.called {
            let Some(callee) = defined.get(method).filter(|callee| **callee != file) else {
                continue;
            };
            calls += 1;
            let (of, name) = method;
            assert!(place(callee) < place(file), "{file} calls {of}::{name} of {callee}");
        }
    }
    assert!(calls > 100, "the calls were not found: {calls}");
}

#[test]
fn calls_are_found_in_the_sources() {
    let code = "
impl Holder for Engine {
    fn told(&self) {
        self.slot(3);
    }
}

impl<'e> Stage<'e> {
    #[inline]
    pub(super) fn first<T>(&self, seat: &Seat) -> T {
        let chain = seat.chain.load(Relaxed);
        self.engine
            .submit(chain);
        state.stock.tell();
        self.own(|| other.lock())
    }
}
";
    let Methods { defined, called } = Methods::of(code);
    let pair = |of: &str, method: &str| (of.to_owned(), method.to_owned());
    assert_eq!(defined, [pair("Stage", "first")]);
    let calls = [("Engine", "slot"), ("Engine", "submit"), ("Stock", "tell"), ("Stage", "own")];
    assert_eq!(called, calls.map(|(of, method)| pair(of, method)));
}

#[test]
fn a_back_end_imports_no_other() {
    let others = ["sys::linux", "sys::bsd", "sys::unix", "sys::windows"];
    for (part, its_own) in [
        ("sys/linux", &["sys::linux", "sys::unix"][..]),
        ("sys/bsd", &["sys::bsd", "sys::unix"]),
        ("sys/unix", &["sys::unix"]),
        ("sys/windows", &["sys::windows"]),
        // Reactors that run on a system and on the simulated kernel.
        ("sys/portable", &[]),
        ("sim", &[]),
        ("port", &[]),
    ] {
        let forbidden: Vec<_> = others.into_iter().filter(|it| !its_own.contains(it)).collect();
        assert_absent(part, &forbidden);
    }
}

#[test]
fn the_traits_of_a_back_end_name_no_system() {
    assert_absent("backend", &["libc", "std::os", "unsafe"]);
    assert_absent("engine", &["std::os", "libc"]);
}

#[test]
fn the_target_system_is_named_in_one_place() {
    for (name, code) in sources("") {
        assert!(
            ["sys/mod.rs", "sys/portable/mod.rs", "types/fd.rs"].contains(&name.as_str())
                // Systems that have much in common.
                || name.starts_with("sys/bsd/")
                || !["target_os", "cfg(windows)", "cfg(unix)"]
                    .iter()
                    .any(|word| code.contains(word)),
            "{name} names a target system"
        );
    }
}
