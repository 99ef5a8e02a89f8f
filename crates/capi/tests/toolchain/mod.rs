//! The C and C++ compilers of this machine, as a user of the library calls them, and what runs the programs.

#![allow(dead_code, reason = "each test program needs a part of it")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

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

/// Where the library is. Cargo does not build it for tests, since Rust has no use for it; so this does, in a
/// directory of its own, without what sanitizers and the like ask of the Rust compiler.
pub(crate) fn library_directory(profile: Profile) -> PathBuf {
    static DIRECTORIES: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let build = || {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi-library");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--offline", "--lib", "--manifest-path"]);
        cargo.arg(package().join("Cargo.toml")).arg("--target-dir").arg(&target);
        if profile == Profile::Release {
            cargo.arg("--release");
        }
        for setting in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(setting);
        }
        succeed(&mut cargo);
        target.join(if profile == Profile::Release { "release" } else { "debug" })
    };
    DIRECTORIES[usize::from(profile == Profile::Release)].get_or_init(build).clone()
}

/// An empty directory for what a test makes.
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

/// The C++ compiler, if there is one; says so by name if there is none.
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

/// The compilers of a language that are here: the system's, and clang beside it.
pub(crate) fn compilers(language: Language) -> Vec<String> {
    let (system, clang) = match language {
        Language::C11 => (Some(cc()), "clang"),
        Language::Cxx17 => (cxx(), "clang++"),
    };
    let mut all: Vec<String> = system.into_iter().collect();
    if answers(clang, "--version") {
        all.push(clang.to_owned());
    } else {
        skipped(clang, "it is not installed");
    }
    all
}

/// Whether a command is here; says so by name if it is not.
pub(crate) fn has(command: &str) -> bool {
    let is_there = answers(command, "--version");
    if !is_there {
        skipped(command, "it is not installed");
    }
    is_there
}

/// Tells what this machine lacks.
pub(crate) fn skipped(name: &str, reason: &str) {
    println!("SKIPPED {name}: {reason}");
}

/// Runs a command, which must succeed; returns what it said.
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

/// What is to be compiled, and how.
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

    /// Compiles and links into `directory`. `None` if the compiler is missing, which was said by then.
    #[track_caller]
    pub(crate) fn program(&self, directory: &Path) -> Option<PathBuf> {
        let compiler = match self.language {
            Language::C11 => cc(),
            Language::Cxx17 => cxx()?,
        };
        let program = directory.join("program");
        let library = library_directory(self.profile);
        let mut command = Command::new(compiler);
        match self.language {
            Language::C11 => command.args(["-std=c11", "-x", "c"]),
            Language::Cxx17 => command.args(["-std=c++17", "-x", "c++"]),
        };
        command.args(STRICT).args(include_flags()).args(&self.flags).args(&self.sources);
        command.args(["-x", "none", "-pthread", "-o"]).arg(&program);
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
        Some(program)
    }
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

/// Runs a program in Valgrind, if there is one; what it has said. Nothing is used after it was freed, nothing is left
/// when the program ends, also of the library's own code, which a sanitizer does not see inside of. The programs do a
/// part of their work only: Valgrind runs one thread at a time, twenty times as slowly.
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
    // It lets no other thread run while one waits in a call on a ring: with a ring the program hangs (Valgrind 3.19).
    valgrind.env("COMPLETION_PORT_FILES", "threads");
    succeed(valgrind.arg(program).env("TEST_RUNS_SLOWLY", "1"))
}
