//! Counts the lines of the library that hold code: no blank lines, comments or tests.
//!
//! The count follows the `mod` declarations from `lib.rs`. It formats each file with rustfmt's default settings first,
//! so that `rustfmt.toml` doesn't change the result.

mod source;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fmt, fs, io, process, thread};

use self::source::Source;

/// Lines of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    /// For any system.
    all: usize,
    /// In modules that a usual build on Linux compiles.
    linux: usize,
}

/// The lines of each folder of a library.
#[derive(Debug, Default)]
struct Count(BTreeMap<String, Lines>);

/// Prints the lines of `crates/completion-port/src`, by folder.
pub(crate) fn lines() -> io::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let rustfmt = Rustfmt::new()?;
    let sources = workspace.join("crates/completion-port/src");
    print!("{}", Count::of(&sources, &|text| rustfmt.format(text))?);
    Ok(())
}

impl Count {
    fn of(folder: &Path, format: &dyn Fn(&str) -> io::Result<String>) -> io::Result<Count> {
        let mut count = Count::default();
        let mut modules = vec![(folder.join("lib.rs"), folder.to_owned(), true)];
        while let Some((file, children, linux)) = modules.pop() {
            let text = fs::read_to_string(&file).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", file.display()))
            })?;
            let source = Source::new(&format(&text)?);
            let lines = count.0.entry(group(folder, &file)).or_default();
            lines.all += source.lines(false);
            lines.linux += if linux { source.lines(true) } else { 0 };
            for module in source.modules() {
                let (file, folder) = module.find(&file, &children)?;
                modules.push((file, folder, linux && module.on_linux));
            }
        }
        Ok(count)
    }

    fn total(&self) -> Lines {
        self.0.values().fold(Lines::default(), |total, lines| Lines {
            all: total.all + lines.all,
            linux: total.linux + lines.linux,
        })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20}{:>8}{:>8}", "folder", "lines", "Linux")?;
        let total = ("total".to_owned(), self.total());
        for (folder, Lines { all, linux }) in self.0.iter().chain([(&total.0, &total.1)]) {
            writeln!(f, "{folder:<20}{all:>8}{linux:>8}")?;
        }
        Ok(())
    }
}

/// The folder under which the table lists a file: at most two levels below the sources.
fn group(sources: &Path, file: &Path) -> String {
    let folder = file.strip_prefix(sources).ok().and_then(Path::parent);
    let levels = folder.into_iter().flat_map(Path::components).take(2);
    let folder: PathBuf = levels.collect();
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

/// rustfmt with its default settings.
struct Rustfmt {
    /// An empty file of settings, in a temporary folder.
    settings: PathBuf,
}

impl Rustfmt {
    fn new() -> io::Result<Rustfmt> {
        let folder = env::temp_dir().join(format!("xtask-lines-{}", process::id()));
        fs::create_dir_all(&folder)?;
        let settings = folder.join("rustfmt.toml");
        fs::write(&settings, "")?;
        Ok(Rustfmt { settings })
    }

    /// Formats one file. rustfmt doesn't follow the `mod` declarations of its standard input.
    fn format(&self, text: &str) -> io::Result<String> {
        let mut child = Command::new("rustfmt")
            .args(["--edition", "2024", "--config-path"])
            .arg(&self.settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("rustfmt: {error}")))?;
        let input = child.stdin.take();
        let output = thread::scope(|scope| {
            let written =
                scope.spawn(|| input.map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes())));
            let output = child.wait_with_output()?;
            written.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))?;
            Ok::<_, io::Error>(output)
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("rustfmt: {}: {said}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }
}

impl Drop for Rustfmt {
    fn drop(&mut self) {
        if let Some(folder) = self.settings.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    /// The count leaves out test modules with their submodules. The column for Linux also leaves out the modules of
    /// other systems.
    #[test]
    fn modules_are_counted_where_their_declarations_say() {
        let folder = env::temp_dir().join(format!("xtask-modules-{}", process::id()));
        let files = [
            (
                "lib.rs",
                "mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(target_os = \"windows\")]\nmod windows;\n",
            ),
            (
                "a/mod.rs",
                "#[path = \"named.rs\"]\nmod b;\n#[cfg(any(test, fuzzing))]\nmod tests;\n",
            ),
            ("a/named.rs", "mod c;\nfn named() {}\n"),
            ("a/c.rs", "// nothing\n\nfn c() {}\n"),
            ("a/tests.rs", "fn test() {}\n"),
            ("tests/mod.rs", "mod deeper;\n"),
            ("tests/deeper.rs", "fn deeper() {}\n"),
            ("windows.rs", "mod port;\n"),
            ("windows/port.rs", "fn port() {\n}\n"),
            ("not_declared.rs", "fn unused() {}\n"),
        ];
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let count = Count::of(&folder, &|text| Ok(text.to_owned()));
        fs::remove_dir_all(&folder).unwrap();
        let count = count.unwrap();
        let folders: Vec<(&str, usize, usize)> =
            count.0.iter().map(|(name, lines)| (name.as_str(), lines.all, lines.linux)).collect();
        // Declarations count as lines, those of test modules don't.
        assert_eq!(folders, [(".", 4, 1), ("a", 5, 5), ("windows", 2, 0)]);
        assert!(count.to_string().ends_with("\ntotal                     11       6\n"), "{count}");
    }

    #[test]
    fn lines_are_those_of_rustfmt_by_default() {
        let rustfmt = Rustfmt::new().unwrap();
        let formatted = rustfmt.format("fn f() { g(\"a string\", \"another\") }").unwrap();
        assert_eq!(formatted, "fn f() {\n    g(\"a string\", \"another\")\n}\n");
        let refused = rustfmt.format("fn f( {").unwrap_err().to_string();
        assert!(refused.contains("unclosed delimiter"), "{refused}");
    }
}
