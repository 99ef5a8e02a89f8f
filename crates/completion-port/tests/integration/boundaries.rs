//! Checks which modules may import which, the layers of ARCHITECTURE.md, and that nothing grows
//! too large to read.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns all sources below `folder`, or the one file: their paths, with `/` on every system, and
/// their text without comments.
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

/// The modules of the crate. Each imports only modules before it.
const MODULES: [&str; 9] =
    ["sync", "types", "memory", "state", "backend", "engine", "sys", "sim", "port"];

/// Returns the part of a file before its unit tests.
fn product(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

fn is_test(name: &str) -> bool {
    name.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[test]
fn the_modules_import_in_one_direction() {
    let place = |module: &str| MODULES.iter().position(|name| *name == module);
    let mut imports = 0;
    for (name, code) in sources("") {
        let (module, rest) = name.split_once('/').unwrap_or((&name, ""));
        // The root names all modules. A module's tests may use modules above it.
        if name == "lib.rs" || is_test(rest) {
            continue;
        }
        let own = place(module).unwrap_or_else(|| panic!("{name} has no place in MODULES"));
        for path in product(&code).split("crate::").skip(1) {
            let imported = word_at_start(path);
            // A port creates sockets of the system or of the simulated kernel.
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

/// Without a back end, every name that a system lacks would be a separate error.
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

fn is_of_a_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word_at_start(text: &str) -> &str {
    text.split(|c| !is_of_a_word(c)).next().unwrap()
}

#[test]
fn a_back_end_imports_no_other() {
    let others = ["sys::linux", "sys::bsd", "sys::unix", "sys::windows"];
    for (part, its_own) in [
        ("sys/linux", &["sys::linux", "sys::unix"][..]),
        ("sys/bsd", &["sys::bsd", "sys::unix"]),
        ("sys/unix", &["sys::unix"]),
        ("sys/windows", &["sys::windows"]),
        // Reactors for both a real system and the simulated kernel.
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
                // These systems have much in common.
                || name.starts_with("sys/bsd/")
                || !["target_os", "cfg(windows)", "cfg(unix)"]
                    .iter()
                    .any(|word| code.contains(word)),
            "{name} names a target system"
        );
    }
}

#[test]
fn no_file_has_more_than_900_lines() {
    for (name, code) in sources("") {
        let lines = code.lines().count();
        assert!(lines <= 900, "{name} has {lines} lines");
    }
}

/// Whether this line begins a function.
fn begins_function(line: &str) -> bool {
    let words = ["pub", "const", "unsafe", "extern", "async"];
    let mut rest = line.split_whitespace().skip_while(|word| {
        words.contains(word)
            || word.starts_with("pub(")
            || word.ends_with(')')
            || word.starts_with('"')
    });
    rest.next() == Some("fn")
}

#[test]
fn no_function_has_more_than_70_lines() {
    let mut functions = 0;
    for (name, code) in sources("").into_iter().filter(|(name, _)| !is_test(name)) {
        let lines: Vec<_> = code.lines().collect();
        for (first, line) in lines.iter().enumerate().filter(|(_, line)| begins_function(line)) {
            let indent = &line[..line.len() - line.trim_start().len()];
            // A body, unless it ends on its first line, ends with the first brace so indented.
            let end = format!("{indent}}}");
            let is_last = |line: &&str| {
                let ends_here = line.starts_with(indent) && !line[indent.len()..].starts_with(' ');
                **line == end || ends_here && line.ends_with([';', '}'])
            };
            let last = lines[first..].iter().position(is_last);
            let length = last.map_or_else(|| panic!("{name}: no end of `{line}`"), |at| at + 1);
            assert!(length <= 70, "{name}: {length} lines: {}", line.trim());
            functions += 1;
        }
    }
    assert!(functions > 1000, "the functions were not found: {functions}");
}

/// Returns the type that an implementation is for, unless it is of one of these traits of the
/// standard library.
fn implemented(line: &str) -> Option<&str> {
    const STANDARD: [&str; 6] = ["Clone", "Debug", "Deref", "DerefMut", "Drop", "Iterator"];
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut open = 0;
        let end = rest.find(|character| {
            open += i32::from(character == '<') - i32::from(character == '>');
            open == 0
        });
        rest = &rest[end? + 1..];
    }
    if let Some((implemented, of)) = rest.split_once(" for ") {
        let path = implemented.trim().split('<').next()?;
        if STANDARD.contains(&path.rsplit("::").next()?) {
            return None;
        }
        rest = of;
    }
    Some(word_at_start(rest.trim().trim_start_matches('&')))
}

#[test]
fn no_type_has_more_than_70_methods() {
    let mut methods = HashMap::<String, usize>::new();
    for (_, code) in sources("").into_iter().filter(|(name, _)| !is_test(name)) {
        let mut current = None;
        for line in product(&code).lines() {
            if line.starts_with("impl") {
                current = implemented(line);
            } else if line == "}" {
                current = None;
            } else if let Some(of) = current
                && line.starts_with("    ")
                && !line.starts_with("     ")
                && begins_function(line)
            {
                *methods.entry(of.to_owned()).or_default() += 1;
            }
        }
    }
    // Pure functions on the bits of one number.
    assert!(methods.remove("Word") > Some(70), "the methods were not found");
    for (of, count) in methods {
        assert!(count <= 70, "{of} has {count} methods");
    }
}
