//! A source file without its comments, and the modules that it declares.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A source file. Its comments are blank, and so are the contents of its strings, except that a line of a string is
/// not an empty line.
pub(super) struct Source {
    text: Vec<char>,
    modules: Vec<Module>,
}

/// A module that a file declares.
#[derive(Debug, PartialEq)]
pub(super) struct Module {
    pub(super) name: String,
    /// The file that the attribute `path` names.
    path: Option<String>,
    /// Only tests have it.
    in_tests: bool,
    /// A usual build on Linux has it.
    pub(super) on_linux: bool,
    /// Its body is in the same file.
    has_body: bool,
    /// Where the declaration is, with its attributes and its body.
    place: Range<usize>,
}

impl Source {
    pub(super) fn new(text: &str) -> Source {
        let original: Vec<char> = text.chars().collect();
        let text = blank(&original);
        let modules = modules(&text, &original);
        Source { text, modules }
    }

    /// The modules in separate files, except those for tests.
    pub(super) fn modules(&self) -> impl Iterator<Item = &Module> {
        let inside = |module: &Module| {
            let place = &module.place;
            self.left_out(false).any(|other| other.start < place.start && place.end <= other.end)
        };
        let counted =
            move |module: &&Module| !module.has_body && !module.in_tests && !inside(module);
        self.modules.iter().filter(counted)
    }

    /// The lines with code, or only those that Linux compiles.
    pub(super) fn lines(&self, linux: bool) -> usize {
        let mut text = self.text.clone();
        for place in self.left_out(linux) {
            text[place.clone()].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
        }
        text.split(|c| *c == '\n').filter(|line| line.iter().any(|c| !c.is_whitespace())).count()
    }

    fn left_out(&self, linux: bool) -> impl Iterator<Item = &Range<usize>> {
        let left_out = move |module: &&Module| module.in_tests || (linux && !module.on_linux);
        self.modules.iter().filter(left_out).map(|module| &module.place)
    }
}

impl Module {
    /// The module's file and the folder of the modules in it. `declared_in` is the file that declares it, and `folder`
    /// the folder of that file's modules.
    pub(super) fn find(&self, declared_in: &Path, folder: &Path) -> io::Result<(PathBuf, PathBuf)> {
        if let Some(path) = &self.path {
            let file = declared_in.with_file_name(path);
            let folder = file.parent().unwrap_or(folder).to_owned();
            return Ok((file, folder));
        }
        let below = folder.join(&self.name);
        let files = [folder.join(format!("{}.rs", self.name)), below.join("mod.rs")];
        let file = files.into_iter().find(|file| file.is_file());
        let missing = || format!("{}: no file for `mod {}`", declared_in.display(), self.name);
        file.map(|file| (file, below)).ok_or_else(|| io::Error::other(missing()))
    }
}

/// The text without comments, and with a sign for each character of a string or a character literal.
fn blank(text: &[char]) -> Vec<char> {
    let mut blank = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let (end, sign) = if text[at..].starts_with(&['/', '/']) {
            (
                text[at..].iter().position(|c| *c == '\n').map_or(text.len(), |length| at + length),
                ' ',
            )
        } else if text[at..].starts_with(&['/', '*']) {
            (comment_ends(text, at), ' ')
        } else if let Some(end) = string_ends(text, at).or_else(|| character_ends(text, at)) {
            (end, '_')
        } else if is_word(text[at]) {
            // A word as a whole, so that its last letter doesn't look like the prefix of a string.
            let length = text[at..].iter().position(|c| !is_word(*c));
            at = length.map_or(text.len(), |length| at + length);
            continue;
        } else {
            at += 1;
            continue;
        };
        blank[at..end].iter_mut().filter(|c| !c.is_whitespace()).for_each(|c| *c = sign);
        at = end;
    }
    blank
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Block comments nest.
fn comment_ends(text: &[char], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0);
    while at < text.len() {
        if text[at..].starts_with(&['/', '*']) {
            (at, depth) = (at + 2, depth + 1);
        } else if text[at..].starts_with(&['*', '/']) {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The end of the string that begins here, with its prefix: `b`, `c`, `r`, `br` or `cr`.
fn string_ends(text: &[char], begin: usize) -> Option<usize> {
    let prefix = text[begin..].iter().take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let hashes = text[begin + prefix..].iter().take_while(|c| **c == '#').count();
    let is_raw = prefix > 0 && text[begin + prefix - 1] == 'r';
    let open = begin + prefix + hashes;
    if prefix > 2 || (hashes > 0 && !is_raw) || text.get(open) != Some(&'"') {
        return None;
    }
    let mut at = open + 1;
    while at < text.len() {
        match text[at] {
            '\\' if !is_raw => at += 1,
            '"' if text[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes => {
                return Some(at + 1 + hashes);
            }
            _ => {}
        }
        at += 1;
    }
    Some(text.len())
}

/// The end of the character literal that begins here; `None` for a lifetime.
fn character_ends(text: &[char], begin: usize) -> Option<usize> {
    let open = if text[begin] == 'b' { begin + 1 } else { begin };
    match text.get(open..open + 3)? {
        ['\'', '\\', _] => {
            let length = text[open + 3..].iter().position(|c| *c == '\'')?;
            Some(open + 3 + length + 1)
        }
        ['\'', _, '\''] => Some(open + 3),
        _ => None,
    }
}

/// The declarations of modules. `text` is blank where `original` has comments and strings.
fn modules(text: &[char], original: &[char]) -> Vec<Module> {
    let mut modules = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let begin = at;
        let mut attributes = Vec::new();
        while text[at..].starts_with(&['#', '[']) {
            let end = closed(text, at + 1);
            // As in the original, since the text has no names of systems and files.
            attributes.push(original[at + 2..end - 1].iter().collect::<String>());
            at = skip_blank(text, end);
        }
        if let Some((name, head, end)) = declaration(text, at) {
            let mut module = Module {
                name,
                path: None,
                in_tests: false,
                on_linux: true,
                has_body: text[end - 1] == '}',
                place: begin..end,
            };
            attributes.iter().for_each(|attribute| module.note(attribute));
            // Modules in the body of a module are found, too.
            at = head;
            modules.push(module);
        } else if at == begin {
            at = if is_word(text[at]) { skip_word(text, at) } else { at + 1 };
        }
    }
    modules
}

impl Module {
    fn note(&mut self, attribute: &str) {
        if let Some(path) = attribute.strip_prefix("path = ") {
            self.path = Some(path.trim_matches('"').to_owned());
        }
        if let Some(condition) = attribute.strip_prefix("cfg") {
            let condition = parse(condition.trim().trim_start_matches('('));
            self.in_tests |= evaluate(&condition, &in_no_test) == Some(false);
            self.on_linux &= evaluate(&condition, &|flag| Some(on_linux(flag))) == Some(true);
        }
    }
}

/// The name of the module that is declared here, where its name ends, and where the declaration ends.
fn declaration(text: &[char], begin: usize) -> Option<(String, usize, usize)> {
    let mut at = begin;
    let mut word = word(text, at);
    if word == "pub" {
        at = skip_blank(text, skip_word(text, at));
        if text.get(at) == Some(&'(') {
            at = skip_blank(text, closed(text, at));
        }
        word = self::word(text, at);
    }
    if word != "mod" {
        return None;
    }
    at = skip_blank(text, skip_word(text, at));
    let name = self::word(text, at);
    let head = skip_word(text, at);
    let end = skip_blank(text, head);
    match text.get(end)? {
        ';' if !name.is_empty() => Some((name, head, end + 1)),
        '{' if !name.is_empty() => Some((name, head, closed(text, end))),
        _ => None,
    }
}

fn word(text: &[char], at: usize) -> String {
    text[at..].iter().take_while(|c| is_word(**c)).collect()
}

fn skip_word(text: &[char], at: usize) -> usize {
    at + text[at..].iter().take_while(|c| is_word(**c)).count()
}

fn skip_blank(text: &[char], at: usize) -> usize {
    at + text[at..].iter().take_while(|c| c.is_whitespace()).count()
}

/// The position after the bracket that closes this one.
fn closed(text: &[char], open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in text.iter().enumerate().skip(open) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The condition of a `cfg`.
#[derive(Debug, PartialEq)]
enum Condition {
    /// `test`, or `target_os = "linux"` without blanks.
    Flag(String),
    /// `all`, `any` or `not`.
    Of(String, Vec<Condition>),
}

fn parse(text: &str) -> Condition {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    condition(&mut text.as_str())
}

/// Takes a condition from the beginning of the text.
fn condition(text: &mut &str) -> Condition {
    let end = text.find(['(', ')', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    *text = rest;
    let Some(inner) = rest.strip_prefix('(') else { return Condition::Flag(name.to_owned()) };
    *text = inner;
    let mut parts = Vec::new();
    while !text.is_empty() && !text.starts_with(')') {
        parts.push(condition(text));
        *text = text.strip_prefix(',').unwrap_or(text);
    }
    *text = text.strip_prefix(')').unwrap_or(text);
    Condition::Of(name.to_owned(), parts)
}

/// Whether the condition is true if the flags are so; `None` if that depends on unknown flags.
fn evaluate(condition: &Condition, flags: &dyn Fn(&str) -> Option<bool>) -> Option<bool> {
    let (name, parts) = match condition {
        Condition::Flag(flag) => return flags(flag),
        Condition::Of(name, parts) => (name, parts),
    };
    let mut values = parts.iter().map(|part| evaluate(part, flags));
    if name == "not" {
        return values.next()?.map(|value| !value);
    }
    let decides = name == "any";
    let values: Vec<Option<bool>> = values.collect();
    if values.contains(&Some(decides)) {
        return Some(decides);
    }
    if values.contains(&None) { None } else { Some(!decides) }
}

fn in_no_test(flag: &str) -> Option<bool> {
    (matches!(flag, "test" | "fuzzing" | "doctest")).then_some(false)
}

/// On 64 bits, with all features but the simulated kernel.
fn on_linux(flag: &str) -> bool {
    let is_set =
        ["unix", "target_os=\"linux\"", "target_family=\"unix\"", "target_pointer_width=\"64\""];
    is_set.contains(&flag) || (flag.starts_with("feature=") && flag != "feature=\"sim\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r####"//! A page.

/// A function. // with slashes
fn one() -> &'static str {
    /* a comment /* inside another */ with a second
       // line
    */ let apart = "not // a comment";
    let same = '"'; // "not a string
    let raw = r##"
        /* not a comment "# */

    "##;

    let escaped = "\" // still a string"; /* the end */
    let quote = ('\'', b'"', '\u{22}', "{");
    r#type(apart, raw, br"\") // one
}

#[doc = "counts"]
pub(crate) mod kept {
    #[cfg(test)]
    fn counts() {}
}

#[allow(unused)]
#[cfg(all(test, not(miri)))]
mod tests {
    fn brace() -> char {
        '}'
    }
    mod elsewhere;
}
#[cfg(test)]
pub(crate) mod more_tests;
#[cfg(any(test, target_os = "freebsd"))]
mod sleepers;
#[cfg(any(
    feature = "sim",
    target_os = "windows",
))]
pub(in crate::sys) mod notifications {
    fn two() {}
}
#[cfg(not(windows))]
#[path = "of_unix.rs"]
pub(super) mod unix;
"####;

    #[test]
    fn comments_blank_lines_and_test_modules_do_not_count() {
        let source = Source::new(SAMPLE);
        // `fn one` has eleven lines, of which the string that spans lines has three.
        let (one, kept, sleepers, notifications, unix) = (11, 5, 2, 7, 3);
        let linux = one - 1 + kept + unix;
        assert_eq!(source.lines(true), linux);
        assert_eq!(source.lines(false), linux + sleepers + notifications);
    }

    #[test]
    fn declared_modules_are_those_in_files_and_not_for_tests() {
        let source = Source::new(SAMPLE);
        let modules: Vec<(&str, bool)> =
            source.modules().map(|module| (module.name.as_str(), module.on_linux)).collect();
        assert_eq!(modules, [("sleepers", false), ("unix", true)]);
        let unix = source
            .modules()
            .last()
            .map(|module| module.find(Path::new("src/sys/mod.rs"), Path::new("src/sys")));
        let found = unix.and_then(Result::ok);
        assert_eq!(found, Some(("src/sys/of_unix.rs".into(), "src/sys".into())));
    }
}
