//! The C and C++ compilers of this machine, as a user of the library calls them, and what runs the programs.

#![allow(dead_code, reason = "each test program needs a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// In which language a source is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C11,
    Cxx17,
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    Shared,
    Static,
}

/// What warns of every fault that a compiler can see.
pub(crate) const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The directory of this package.
pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// With which of cargo's profiles the library is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// With every check.
    Debug,
    /// As it is installed.
    Release,
}

/// What asks for another kind of build of Rust.
const SETTINGS: [&str; 3] = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"];

/// The location of the library. Cargo does not build it for tests, since Rust does not use it. So
/// this builds it, in the directory of the tests. If sanitizers require options of the Rust
/// compiler, it omits them and uses a separate directory.
pub(crate) fn library_directory(profile: Profile) -> PathBuf {
    static DIRECTORIES: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let build = || {
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let is_plain = SETTINGS.iter().all(|setting| env::var_os(setting).is_none());
        let target = match temporary.parent() {
            Some(target) if is_plain => target.to_owned(),
            _ => temporary.join("capi-library"),
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--offline", "--lib", "--manifest-path"]);
        cargo.arg(package().join("Cargo.toml")).arg("--target-dir").arg(&target);
        if profile == Profile::Release {
            cargo.arg("--release");
        }
        for setting in SETTINGS {
            cargo.env_remove(setting);
        }
        succeed(&mut cargo);
        target.join(if profile == Profile::Release { "release" } else { "debug" })
    };
    DIRECTORIES[usize::from(profile == Profile::Release)].get_or_init(build).clone()
}

/// An empty directory for a test's files.
pub(crate) fn scratch(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{test}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Whether there is such a command; looked for once by the caller.
fn answers(command: &str, question: &str) -> bool {
    Command::new(command).arg(question).output().is_ok_and(|output| output.status.success())
}

/// The C compiler.
pub(crate) fn cc() -> String {
    env::var("CC").unwrap_or_else(|_| "cc".to_owned())
}

/// The C++ compiler; prints a message if there is none.
pub(crate) fn cxx() -> Option<String> {
    static CXX: OnceLock<Option<String>> = OnceLock::new();
    let found = CXX.get_or_init(|| {
        Some(env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
            .filter(|command| answers(command, "--version"))
    });
    if found.is_none() {
        skipped("C++", "no C++ compiler is installed");
    }
    found.clone()
}

/// The system's compiler of a language, if there is one.
pub(crate) fn compiler(language: Language) -> Option<String> {
    match language {
        Language::C11 => Some(cc()),
        Language::Cxx17 => cxx(),
    }
}

/// The available compilers of a language: the system's, and clang if present.
pub(crate) fn compilers(language: Language) -> Vec<String> {
    let clang = if language == Language::C11 { "clang" } else { "clang++" };
    let mut all: Vec<String> = compiler(language).into_iter().collect();
    if answers(clang, "--version") {
        all.push(clang.to_owned());
    } else {
        skipped(clang, "it is not installed");
    }
    all
}

/// Whether a command is available; prints a message if not.
pub(crate) fn has(command: &str) -> bool {
    let is_there = answers(command, "--version");
    if !is_there {
        skipped(command, "it is not installed");
    }
    is_there
}

/// Prints what this machine lacks.
pub(crate) fn skipped(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
}

/// Runs a command, which must succeed; returns its output.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let said = said(&output);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// Runs a command.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Both of a command's outputs.
pub(crate) fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// The sources and options of a program.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) language: Language,
    pub(crate) linkage: Linkage,
    pub(crate) profile: Profile,
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) flags: Vec<&'static str>,
}

impl Build {
    /// A program of the tests, in its own language, with every warning.
    pub(crate) fn of(sources: &[&str]) -> Self {
        let is_cxx = sources.iter().any(|source| source.ends_with(".cpp"));
        Self {
            language: if is_cxx { Language::Cxx17 } else { Language::C11 },
            linkage: Linkage::Shared,
            profile: Profile::Debug,
            sources: sources.iter().map(|source| package().join("tests").join(source)).collect(),
            flags: vec!["-g", "-D_DEFAULT_SOURCE", "-fms-extensions", "-Wno-unknown-pragmas"],
        }
    }

    /// An example, as its own build does it: without the system's additions to C11.
    pub(crate) fn of_example(name: &str) -> Self {
        Self {
            sources: vec![package().join("examples").join(name)],
            flags: vec!["-g"],
            ..Self::of(&[])
        }
    }

    pub(crate) fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    pub(crate) fn linked(self, linkage: Linkage) -> Self {
        Self { linkage, ..self }
    }

    pub(crate) fn with(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    pub(crate) fn in_cxx(self) -> Self {
        Self { language: Language::Cxx17, ..self }
    }

    /// Compiles and links into `directory`. `None` if the compiler is missing, which was printed.
    #[track_caller]
    pub(crate) fn program(&self, directory: &Path) -> Option<PathBuf> {
        let program = directory.join("program");
        self.make(&compiler(self.language)?, directory, &program);
        Some(program)
    }

    /// The program of that name from an earlier run, if none of its inputs has changed: the
    /// command, the compiler, and the content of each file that was read, including the system's
    /// headers. Otherwise builds it again. The shared library may differ: the program only has its
    /// path.
    #[track_caller]
    pub(crate) fn kept(&self, name: &str) -> Option<PathBuf> {
        let compiler = compiler(self.language)?;
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-programs").join(name);
        let (program, record) = (directory.join("program"), directory.join("made-of"));
        // The library is present and current.
        library_directory(self.profile);
        let is_present = self.linkage == Linkage::Shared && program.exists();
        if let Ok(kept) = fs::read_to_string(&record)
            && is_present
            && let Some((_, files)) = kept.split_once(FILES)
        {
            let files = files.lines().filter_map(|line| line.split_once(' ')).map(|it| it.1);
            if kept == self.made_of(&compiler, files) {
                return Some(program);
            }
        }
        // Another thread or process may build the same program at this moment. The renames are atomic.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let own = directory.join(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&own).unwrap();
        let read = self.make(&compiler, &own, &own.join("program"));
        let _ = fs::remove_file(&record);
        fs::rename(own.join("program"), &program).unwrap();
        fs::write(own.join("made-of"), self.made_of(&compiler, read.iter().map(String::as_str)))
            .unwrap();
        fs::rename(own.join("made-of"), &record).unwrap();
        fs::remove_dir_all(&own).unwrap();
        Some(program)
    }

    /// The compiler takes it, without a warning.
    #[track_caller]
    pub(crate) fn is_accepted(&self) {
        let Some(compiler) = compiler(self.language) else { return };
        succeed(self.compile(&compiler).arg("-fsyntax-only").args(&self.sources));
    }

    fn compile(&self, compiler: &str) -> Command {
        let mut command = Command::new(compiler);
        match self.language {
            Language::C11 => command.args(["-std=c11", "-x", "c"]),
            Language::Cxx17 => command.args(["-std=c++17", "-x", "c++"]),
        };
        command.args(STRICT).args(include_flags()).args(&self.flags).arg("-pthread");
        command
    }

    /// Compiles and links; the files that were read.
    #[track_caller]
    fn make(&self, compiler: &str, directory: &Path, program: &Path) -> Vec<String> {
        let mut read = BTreeSet::new();
        let mut objects = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            let [object, list] = ["o", "d"].map(|it| directory.join(format!("{number}.{it}")));
            let mut command = self.compile(compiler);
            command.arg("-c").arg(source).arg("-MD").arg("-MF").arg(&list);
            succeed(command.arg("-o").arg(&object));
            // A rule of make, of which the first word is the object.
            let list = fs::read_to_string(&list).unwrap().replace("\\\n", " ");
            read.extend(list.split_whitespace().skip(1).map(str::to_owned));
            objects.push(object);
        }
        let library = library_directory(self.profile);
        let mut command = Command::new(compiler);
        command.args(&self.flags).args(&objects).args(["-pthread", "-o"]).arg(program);
        match self.linkage {
            Linkage::Shared => {
                command.arg("-L").arg(&library).arg("-lcompletion_port");
                command.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", library.display()));
            }
            Linkage::Static => {
                command.arg(library.join("libcompletion_port.a")).args(["-ldl", "-lm"]);
            }
        }
        succeed(&mut command);
        read.into_iter().collect()
    }

    /// All inputs that affect the program, as text; the files last.
    fn made_of<'a>(&self, compiler: &str, files: impl Iterator<Item = &'a str>) -> String {
        let mut text = format!("{:?}\n{self:?}\n", self.compile(compiler));
        text += &format!("{}\n", library_directory(self.profile).display());
        text += &version(compiler);
        for name in
            ["CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH"]
        {
            text += &format!("{name}={:?}\n", env::var_os(name));
        }
        // A new header may come before one of the same name.
        for folder in ["include", "compat/include", "compat/include/sys", "tests"] {
            let files = fs::read_dir(package().join(folder)).unwrap();
            let names: BTreeSet<_> = files.map(|file| file.unwrap().file_name()).collect();
            text += &format!("{folder}: {names:?}\n");
        }
        text += FILES;
        for file in files {
            text += &format!("{:016x} {file}\n", digest(file));
        }
        text
    }
}

/// Before the files that a program was made of.
const FILES: &str = "\nfiles:\n";

/// A hash of a file's content, computed once.
fn digest(file: &str) -> u64 {
    static FOUND: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap();
    *found.entry(file.to_owned()).or_insert_with(|| {
        let mut hasher = DefaultHasher::new();
        fs::read(file).ok().hash(&mut hasher);
        hasher.finish()
    })
}

/// A compiler's version output, asked once.
fn version(compiler: &str) -> String {
    static TOLD: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut told = TOLD.lock().unwrap();
    told.entry(compiler.to_owned())
        .or_insert_with(|| succeed(Command::new(compiler).arg("--version")))
        .clone()
}

/// Where the headers are.
pub(crate) fn include_flags() -> [String; 2] {
    ["compat/include", "include"].map(|place| format!("-I{}", package().join(place).display()))
}

/// Whether the leak detector works: in some containers it may not stop the threads that it looks at.
pub(crate) fn finds_leaks() -> bool {
    static FINDS: OnceLock<bool> = OnceLock::new();
    *FINDS.get_or_init(|| {
        let directory = scratch("finds-leaks");
        let source = directory.join("leak.c");
        let text = "#include <stdlib.h>\nint main(int count, char **words) {\n    (void)words;\n    \
                    char *volatile lost = malloc(100);\n    lost[0] = 1;\n    \
                    if (count == 1) free(lost);\n    lost = 0;\n    return 0;\n}\n";
        fs::write(&source, text).unwrap();
        let program = directory.join("leak");
        let mut compile = Command::new(cc());
        compile.arg("-fsanitize=address").arg(&source).arg("-o").arg(&program);
        if !run(&mut compile).status.success() {
            skipped("AddressSanitizer", "the C compiler has none");
            return false;
        }
        let is_clean = |command: &mut Command| run(command).status.success();
        let finds = is_clean(&mut Command::new(&program))
            && !is_clean(Command::new(&program).arg("leak"));
        if !finds {
            skipped("leak detection", "LeakSanitizer does not work on this kernel or in this container");
        }
        finds
    })
}

/// Runs a program in Valgrind, if there is one; returns its output. Nothing is used after it was
/// freed, and nothing remains when the program ends. This includes the library's own code, which a
/// sanitizer does not see. The programs do only a part of their work: Valgrind runs one thread at a
/// time, twenty times as slowly.
pub(crate) fn is_clean_in_valgrind(program: &Path) -> String {
    if !has("valgrind") {
        return String::new();
    }
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--quiet",
        "--error-exitcode=97",
        "--leak-check=full",
        "--show-leak-kinds=definite,indirect",
        "--errors-for-leak-kinds=definite,indirect",
        "--fair-sched=try",
    ]);
    // It lets no other thread run during a blocking call on a ring: with a ring the program hangs
    // (Valgrind 3.19).
    valgrind.env("COMPLETION_PORT_FILES", "threads");
    succeed(valgrind.arg(program).env("TEST_RUNS_SLOWLY", "1"))
}
