//! The headers compile in every language, order and company that is promised, without a warning.
//!
//! What stands here without `#[ignore]` compiles with the system's compilers as C11 and as C++17. The ignored tests
//! repeat it with every compiler, standard and set of flags, and find what only one of those refuses.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use toolchain::{Build, Language, STRICT, compilers, include_flags, package, scratch, succeed};

/// The standards of a language in which the headers are read, the strict ones and those with additions.
fn standards(language: Language) -> &'static [&'static str] {
    match language {
        Language::C11 => &["c11", "gnu11", "c17", "gnu17"],
        Language::Cxx17 => &["c++17", "gnu++17", "c++20"],
    }
}

/// What a source does with the headers, so that none of it is left out by the compiler.
const USES: &str = "
#include <stddef.h>
int used(void);
int used(void) {
    SOCK_NOTIFY_REGISTRATION registration;
    OVERLAPPED_ENTRY entry;
    WSADATA data;
    UINT32 received;
    u_long on = 1;
    struct sockaddr_in address;
    int length = (int)sizeof address, value = 0;
    char byte = 0;
    fd_set set;
    const struct timeval at_once = {0, 0};
    HANDLE port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    SOCKET s, accepted;
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0 || port == NULL)
        return (int)GetLastError();
    s = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
    if (s == INVALID_SOCKET || ioctlsocket(s, FIONBIO, &on) == SOCKET_ERROR)
        return WSAGetLastError();
    FD_ZERO(&set);
    FD_SET(s, &set);
    if (sizeof set != 65 * sizeof s || select(0, &set, NULL, NULL, &at_once) == SOCKET_ERROR || !FD_ISSET(s, &set))
        FD_CLR(s, &set);
    memset(&address, 0, sizeof address);
    memset(&registration, 0, sizeof registration);
    address.sin_family = AF_INET;
    if (bind(s, (struct sockaddr *)&address, sizeof address) == SOCKET_ERROR || listen(s, SOMAXCONN) != 0 ||
        getsockname(s, (struct sockaddr *)&address, &length) != 0)
        return WSAGetLastError();
    accepted = accept(s, (struct sockaddr *)&address, &length);
    if (accepted == INVALID_SOCKET && WSAGetLastError() != WSAEWOULDBLOCK)
        return 1;
    if ((accepted = accept(s, NULL, NULL)) != INVALID_SOCKET || recv(s, &byte, 1, 0) == SOCKET_ERROR ||
        send(s, &byte, 1, 0) == SOCKET_ERROR || shutdown(s, SD_BOTH) == SOCKET_ERROR)
        SetLastError(2);
    if (getsockopt(s, SOL_SOCKET, SO_ERROR, (char *)&value, &length) != 0 ||
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, (const char *)&value, sizeof value) != 0 ||
        recvfrom(s, &byte, 1, 0, (struct sockaddr *)&address, &length) < 0 ||
        sendto(s, &byte, 1, 0, (const struct sockaddr *)&address, sizeof address) < 0 ||
        connect(s, (const struct sockaddr *)&address, sizeof address) == SOCKET_ERROR ||
        getpeername(s, (struct sockaddr *)&address, &length) != 0)
        WSASetLastError(3);
    registration.socket = s;
    registration.completionKey = &registration;
    registration.eventFilter = SOCK_NOTIFY_REGISTER_EVENTS_ALL;
    registration.operation = SOCK_NOTIFY_OP_ENABLE;
    registration.triggerFlags = SOCK_NOTIFY_TRIGGER_EDGE | SOCK_NOTIFY_TRIGGER_ONESHOT;
    if (ProcessSocketNotifications(port, 1, &registration, INFINITE, 1, &entry, &received) == ERROR_SUCCESS)
        SetLastError(SocketNotificationRetrieveEvents(&entry) & SOCK_NOTIFY_EVENTS_ALL);
    closesocket(s);
    return CloseHandle(port) ? WSACleanup() : 4;
}
";

/// The compilers to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The system's compilers, the first standard and the first flags.
    One,
    /// Each that is here.
    All,
}

impl By {
    fn compilers(self, language: Language) -> Vec<String> {
        match self {
            Self::One => toolchain::compiler(language).into_iter().collect(),
            Self::All => compilers(language),
        }
    }

    fn of<T>(self, all: &[T]) -> &[T] {
        if self == Self::One { &all[..1] } else { all }
    }
}

/// Two tests of a function: `by_one`, which is always run, and `by_all`.
macro_rules! by_one_and_by_all {
    ($($(#[$about:meta])* $name:ident;)+) => {$(
        $(#[$about])*
        mod $name {
            use super::By;

            #[test]
            fn by_one() {
                super::$name(By::One);
            }

            #[test]
            #[ignore = "the leg c-headers"]
            fn by_all() {
                super::$name(By::All);
            }
        }
    )+};
}

by_one_and_by_all! {
    each_header_stands_alone;
    the_header_has_the_version_of_the_package;
    the_systems_headers_may_come_before;
    the_systems_headers_may_come_after;
    an_argument_of_another_type_does_not_compile;
    a_call_of_what_is_not_there_is_refused_with_the_reason;
    a_compiler_without_the_attribute_refuses_nothing_that_is_there;
    a_call_without_a_declaration_is_refused;
    unicode_names_are_the_wide_ones;
    the_standard_library_of_cxx_may_come_before_and_after;
}

/// Compiles a source under the standards, with each set of flags.
fn compiles(by: By, test: &str, text: &str, flags: &[&[&str]]) {
    compiles_under(by, usize::MAX, test, text, flags);
}

/// The same, with at most that many standards of each language.
fn compiles_under(by: By, most: usize, test: &str, text: &str, flags: &[&[&str]]) {
    let directory = scratch(&format!("{test}-{by:?}"));
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        fs::write(&source, text).unwrap();
        for compiler in by.compilers(language) {
            for standard in by.of(standards(language)).iter().take(most) {
                for flags in by.of(flags) {
                    compile(by, &compiler, standard, flags, &source);
                }
            }
        }
    }
}

fn compile(by: By, compiler: &str, standard: &str, flags: &[&str], source: &Path) {
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT).args(include_flags()).args(flags);
    match by {
        By::One => command.arg("-fsyntax-only").arg(source),
        // Some warnings are those of the optimiser.
        By::All => command.args(["-c", "-o", "/dev/null"]).arg(source),
    };
    let is_fortified = flags.iter().any(|flag| flag.starts_with("-D_FORTIFY_SOURCE"));
    let is_late = fs::read_to_string(source).unwrap().starts_with(SYSTEM);
    if compiler.starts_with("clang") && is_fortified && is_late {
        // It prints the reason and an alternative.
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("include <winsock2.h> before <sys/socket.h>"), "{said}");
        return;
    }
    succeed(&mut command);
}

const PLAIN: &[&[&str]] = &[&[]];

/// The names of the files in a directory.
fn files_of(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(package().join(directory)).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Every header of the two directories, alone and twice. By one: and then `windows.h`.
fn each_header_stands_alone(by: By) {
    for directory in ["include", "compat/include"] {
        for name in files_of(directory) {
            let test = format!("alone-{name}");
            // Programs do not include the parts of others themselves. The other tests have all standards.
            let is_part = name.starts_with("cp_");
            if by == By::One && is_part {
                continue;
            }
            let last = if by == By::One { "#include <windows.h>\n" } else { "" };
            let text = format!("#include <{name}>\n#include <{name}>\n{last}int unit;\n");
            let most = if is_part { 1 } else { 2 };
            compiles_under(by, most, &test, &text, PLAIN);
        }
    }
}

/// Options for ported sources, and the default options.
const FOR_WINDOWS: &[&[&str]] =
    &[&["-D_WIN32", "-D_WIN64", "-DWIN32", "-D_WINDOWS", "-DWIN32_LEAN_AND_MEAN"], &[]];

/// Any two of the headers that programs include, also in sources that claim to be compiled for
/// Windows.
#[test]
#[ignore = "the leg c-headers"]
fn any_two_headers_stand_together_in_either_order() {
    let headers = headers_of_programs();
    let directory = scratch("pairs");
    for (first, second) in headers.iter().flat_map(|one| headers.iter().map(move |it| (one, it))) {
        for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
            let source = directory.join(name);
            let text = format!("#include <{first}>\n#include <{second}>\nint unit;\n");
            fs::write(&source, text).unwrap();
            let Some(compiler) = toolchain::compiler(language) else { continue };
            for flags in FOR_WINDOWS {
                compile(By::One, &compiler, standards(language)[0], flags, &source);
            }
        }
    }
}

/// All headers that programs include, in one source after `windows.h`, in both orders.
#[test]
fn all_headers_stand_together() {
    let mut headers = headers_of_programs();
    headers.sort();
    let mut text = "#include <windows.h>\n".to_owned();
    for name in &headers {
        text += &format!("#include <{name}>\n");
    }
    compiles(By::One, "all", &format!("{text}int unit;\n"), FOR_WINDOWS);
    let reversed: String = text.lines().rev().map(|line| format!("{line}\n")).collect();
    compiles(By::One, "all-reversed", &format!("{reversed}int unit;\n"), FOR_WINDOWS);
}

fn headers_of_programs() -> Vec<String> {
    let all = ["include", "compat/include"].into_iter().flat_map(files_of);
    let headers: Vec<_> = all.filter(|name| !name.starts_with("cp_")).collect();
    assert!(headers.iter().any(|name| name == "windows.h") && headers.len() > 10, "{headers:?}");
    headers
}

/// A program gets the internals only by way of the compat headers.
#[test]
fn only_the_compat_headers_include_the_internals() {
    let internals = "completion_port_internals.h";
    for (directory, includes) in [
        ("include", &[][..]),
        ("compat/include", &["cp_base.h"]),
        ("examples", &[]),
        ("tests", &[]),
    ] {
        let mut found = Vec::new();
        for entry in fs::read_dir(package().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let is_c = path.extension().is_some_and(|it| it == "c" || it == "cpp" || it == "h");
            let text = if is_c { fs::read_to_string(&path).unwrap() } else { String::new() };
            let is_include = |line: &str| line.starts_with("#include") && line.contains(internals);
            if text.lines().any(is_include) {
                found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        assert_eq!(found, includes, "{directory}");
    }
}

/// A program that calls the functions by their own names keeps the checks of the C library's headers.
#[test]
#[ignore = "the leg c-headers"]
fn the_plain_header_leaves_fortified_calls_as_they_are() {
    let directory = scratch("plain-fortified");
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        for compiler in compilers(language) {
            let [plain, with_ours] = ["", "#include <completion_port.h>\n"].map(|ours| {
                fs::write(&source, format!("{ours}#include <sys/socket.h>\n")).unwrap();
                let mut command = Command::new(&compiler);
                command.arg(format!("-std={}", standards(language)[0])).args(include_flags());
                command.args(["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-E"]);
                succeed(command.arg(&source)).contains("__recv_chk")
            });
            assert_eq!(plain, with_ours, "{compiler}");
        }
    }
}

/// As in a program with an older standard, with pkg-config's flags.
#[test]
#[ignore = "the leg c-headers"]
fn older_standards_do_too() {
    let directory = scratch("older");
    let flags = ["-D_DEFAULT_SOURCE", "-fms-extensions", "-Wno-unknown-pragmas"];
    for (language, name, standards) in [
        (Language::C11, "unit.c", ["gnu89", "c99", "gnu99"]),
        (Language::Cxx17, "unit.cpp", ["c++98", "c++11", "c++14"]),
    ] {
        let source = directory.join(name);
        fs::write(
            &source,
            format!("{OURS}#include <process.h>\n#include <ws2tcpip.h>\nint unit;\n"),
        )
        .unwrap();
        for compiler in compilers(language) {
            for standard in standards {
                let mut command = Command::new(&compiler);
                command.arg(format!("-std={standard}")).args(include_flags()).args(flags);
                succeed(command.args(["-c", "-o", "/dev/null"]).arg(&source));
            }
        }
    }
}

/// Each part of the version, for the preprocessor and in an expression.
fn the_header_has_the_version_of_the_package(by: By) {
    let parts = [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let mut text = "#include <completion_port.h>\n".to_owned();
    for (part, number) in parts {
        text += &format!("#if CP_VERSION_{part} != {number}\n#error \"not {number}\"\n#endif\n");
    }
    let [major, minor, patch] = parts.map(|(_, number)| number);
    text += &format!(
        "#if CP_VERSION != CP_VERSION_NUMBER({major}, {minor}, {patch})\n#error \"not the number\"\n#endif\n"
    );
    // A larger part outweighs all later ones.
    let ascending = [(0, 0, 1), (0, 0, 999), (0, 1, 0), (0, 999, 999), (1, 0, 0), (999, 0, 0)];
    let numbers = ascending.map(|it| format!("CP_VERSION_NUMBER{it:?}"));
    for pair in numbers.windows(2) {
        let [less, more] = [&pair[0], &pair[1]];
        text += &format!("#if {less} >= {more}\n#error \"{less} is not less\"\n#endif\n");
    }
    let expression = format!("CP_VERSION == CP_VERSION_NUMBER({major}, {minor}, {patch})");
    text += &format!("typedef char is_the_number[({expression}) ? 1 : -1];\n");
    compiles(by, "version", &text, PLAIN);
}

const SYSTEM: &str = "#include <sys/types.h>\n#include <sys/socket.h>\n#include <sys/ioctl.h>\n\
    #include <sys/select.h>\n#include <netinet/in.h>\n#include <netinet/tcp.h>\n#include <arpa/inet.h>\n\
    #include <netdb.h>\n#include <unistd.h>\n#include <fcntl.h>\n#include <pthread.h>\n#include <poll.h>\n\
    #include <errno.h>\n#include <string.h>\n#include <stdlib.h>\n#include <stdio.h>\n#include <wchar.h>\n\
    #include <time.h>\n#include <signal.h>\n#include <stdint.h>\n";
const OURS: &str = "#include <winsock2.h>\n#include <mswsock.h>\n#include <windows.h>\n";

/// With the additions of the system asked for and not, as a program does it that has more in view.
const COMPANY: &[&[&str]] = &[
    &[],
    &["-D_GNU_SOURCE"],
    &["-D_POSIX_C_SOURCE=200809L"],
    &["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"],
    &["-DWIN32_LEAN_AND_MEAN", "-DNOMINMAX", "-D_WIN32_WINNT=0x0A00"],
    &["-D_WIN32", "-D_WIN64"],
    &["-DCP_NO_WIN32", "-DCP_NO_SAL"],
    &["-fms-extensions"],
];

fn the_systems_headers_may_come_before(by: By) {
    compiles(by, "before", &format!("{SYSTEM}{OURS}{USES}"), COMPANY);
}

fn the_systems_headers_may_come_after(by: By) {
    compiles(by, "after", &format!("{OURS}{SYSTEM}{USES}"), COMPANY);
}

#[test]
#[ignore = "the leg c-headers"]
fn the_systems_headers_may_come_in_between() {
    for (before, after) in [
        ("#include <sys/socket.h>\n", "#include <netinet/in.h>\n#include <pthread.h>\n"),
        ("#include <netinet/in.h>\n", "#include <sys/socket.h>\n#include <pthread.h>\n"),
        ("#include <pthread.h>\n", "#include <sys/socket.h>\n#include <netinet/in.h>\n"),
    ] {
        compiles(By::All, "between", &format!("{before}{OURS}{after}{USES}"), PLAIN);
        let text = format!("#include <windows.h>\n{before}#include <winsock2.h>\n{after}{USES}");
        compiles(By::All, "between", &text, PLAIN);
    }
}

/// The optional headers in any order with the others.
#[test]
#[ignore = "the leg c-headers"]
fn the_optional_headers_may_come_anywhere() {
    let optional = "#include <sal.h>\n#include <cp_win32.h>\n#include <completion_port.h>\n";
    compiles(By::All, "optional-first", &format!("{optional}{SYSTEM}{OURS}{USES}"), PLAIN);
    compiles(By::All, "optional-last", &format!("{OURS}{SYSTEM}{optional}{USES}"), PLAIN);
    compiles(By::All, "ws2tcpip", &format!("{OURS}#include <ws2tcpip.h>\n{USES}"), PLAIN);
}

/// Sources name the libraries they need by a pragma of the reference's compilers.
#[test]
#[ignore = "the leg c-headers"]
fn a_pragma_that_names_a_library_is_no_fault() {
    let text = format!("{OURS}#pragma comment(lib, \"ws2_32.lib\")\n{USES}");
    let directory = scratch("pragma");
    let [c, cxx] = ["unit.c", "unit.cpp"].map(|name| directory.join(name));
    fs::write(&c, &text).unwrap();
    fs::write(&cxx, &text).unwrap();
    for compiler in compilers(Language::C11) {
        compile(By::All, &compiler, "c11", &[], &c);
    }
    for compiler in compilers(Language::Cxx17) {
        // Some compilers ignore the header's pragmas in C++; the pkg-config file has the option.
        compile(By::All, &compiler, "c++17", &["-Wno-unknown-pragmas"], &cxx);
    }
}

/// What `ioctlsocket` would overrun, or take for something else, does not compile, in either language.
fn an_argument_of_another_type_does_not_compile(by: By) {
    const RIGHT: [&str; 3] = ["u_long", "DWORD", "ULONG"];
    const WRONG: [&str; 6] = ["int", "LONG", "char", "unsigned short", "long", "UINT_PTR *"];
    // A compiler names the file `N.arg` in its messages about argument N.
    let unit = |arguments: &[&str]| {
        let mut text = OURS.to_owned();
        for (number, argument) in arguments.iter().enumerate() {
            text += &format!(
                "#line 1 \"{number}.arg\"\nint used_{number}(SOCKET s);\n\
                 int used_{number}(SOCKET s) {{ {argument} value = 0; \
                 return ioctlsocket(s, FIONREAD, &value) + (int)(value != 0); }}\n"
            );
        }
        text
    };
    let directory = scratch(&format!("argument-{by:?}"));
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        for compiler in by.compilers(language) {
            let said_of = |arguments: &[&str]| {
                fs::write(&source, unit(arguments)).unwrap();
                let mut command = Command::new(&compiler);
                command.arg(format!("-std={}", standards(language)[0])).args(include_flags());
                command.args(["-c", "-o", "/dev/null"]).arg(&source);
                if compiler.starts_with("clang") {
                    command.arg("-ferror-limit=0");
                }
                let output = toolchain::run(&mut command);
                (output.status.success(), toolchain::said(&output))
            };
            let (is_taken, said) = said_of(&RIGHT);
            assert!(is_taken, "{compiler}: {said}");
            // Each of them is an error, not just one.
            let (is_taken, said) = said_of(&WRONG);
            assert!(!is_taken, "{compiler}");
            // An error may be that of a macro in a header, after the function's name.
            let mut refused = BTreeSet::new();
            let mut about: Option<usize> = None;
            for line in said.lines() {
                let place = line.split_once(".arg:").and_then(|(number, _)| number.parse().ok());
                about = place.or(about);
                if line.contains("error: ") {
                    refused.extend(about);
                }
            }
            assert!(refused.into_iter().eq(0..WRONG.len()), "{compiler}: {said}");
        }
    }
}

/// A call in a source, and the compilers' message.
const REFUSED: [(&str, &str); 16] = [
    ("DeviceIoControl(handle, 0, NULL, 0, NULL, 0, &count, &overlapped)", "ioctl(2)"),
    ("ConnectNamedPipe(handle, &overlapped)", "AF_UNIX sockets"),
    ("CancelSynchronousIo(handle)", "CancelIoEx"),
    ("ReadFileEx(handle, &flags, 4, &overlapped, a_routine_of_reads)", "no APCs"),
    (
        "WSAIoctl(s, SIO_GET_MULTIPLE_EXTENSION_FUNCTION_POINTER, 0, 0, 0, 0, &count, NULL, NULL)",
        "registered I/O",
    ),
    ("QueueUserAPC(NULL, handle, 0) != 0", "no APCs"),
    ("SetWaitableTimer(handle, NULL, 0, a_routine, NULL, FALSE)", "no APCs"),
    ("SetWaitableTimer(handle, NULL, 1, &a_routine, NULL, FALSE)", "no APCs"),
    ("ConvertThreadToFiber(NULL) != NULL", "(fibers)"),
    ("CreatePipe(&handle, &handle, NULL, 0)", "pipe(2)"),
    ("WSAEventSelect(s, handle, FD_READ)", "port"),
    ("(int)SetThreadAffinityMask(handle, 1)", "affinity"),
    ("ShowWindow(NULL, 0)", "windows"),
    ("OpenFileMappingA(FILE_MAP_READ, FALSE, NULL) != NULL", "shm_open(3)"),
    ("ReadConsoleInputW(handle, NULL, 0, &count)", "termios(3)"),
    ("RegCloseKey(HKEY_LOCAL_MACHINE)", "registry"),
];
/// What may be called.
const TAKEN: [&str; 6] = [
    "ReadFile(handle, &flags, 4, &count, pointer)",
    "WriteFile(handle, &flags, 4, &count, NULL)",
    "ReadFile(handle, &flags, 4, &count, &context->overlapped)",
    "WriteFile(handle, &flags, 4, &count, derived)",
    "TransmitFile(s, handle, 0, 0, ITS_ADDRESS, NULL, 0)",
    "SetWaitableTimer(handle, NULL, 0, NULL, NULL, FALSE)",
];
const ABSENT: &str = "not available on Linux: see PORTING.md";

/// Calling an absent function is a compiler error with the reason, even without optimisation.
fn a_call_of_what_is_not_there_is_refused_with_the_reason(by: By) {
    let directory = scratch(&format!("refused-{by:?}"));
    let unit = |calls: &[&str]| {
        let mut text = format!(
            "{OURS}#define ITS_ADDRESS &overlapped\n\
             typedef struct CONTEXT {{ OVERLAPPED overlapped; LPOVERLAPPED next, *list; }} CONTEXT;\n\
             #ifdef __cplusplus\nstruct DERIVED : OVERLAPPED {{}};\n#else\ntypedef OVERLAPPED DERIVED;\n#endif\n\
             VOID CALLBACK a_routine(LPVOID argument, DWORD low, DWORD high);\n\
             VOID CALLBACK a_routine_of_reads(DWORD code, DWORD bytes, LPOVERLAPPED overlapped);\n"
        );
        for (number, call) in calls.iter().enumerate() {
            let head = format!(
                "int used_{number}(SOCKET s, HANDLE handle, LPOVERLAPPED pointer, CONTEXT *context, DERIVED *derived)"
            );
            text += &format!(
                "{head};\n{head} {{\n    WSABUF buffer = {{0, 0}};\n    OVERLAPPED overlapped;\n    \
                 DWORD count = 0, flags = 0;\n    (void)s, (void)handle, (void)pointer, (void)context, (void)derived, \
                 (void)buffer, (void)overlapped, (void)flags, (void)count;\n    return {call};\n}}\n"
            );
        }
        text
    };
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        for compiler in by.compilers(language) {
            for level in by.of(&["-O0", "-O2"]) {
                let said_of = |calls: &[&str]| {
                    fs::write(&source, unit(calls)).unwrap();
                    let mut command = Command::new(&compiler);
                    command.arg(format!("-std={}", standards(language)[0])).args(include_flags());
                    command.args([*level, "-c", "-o", "/dev/null"]).arg(&source);
                    if compiler.starts_with("clang") {
                        command.arg("-ferror-limit=0");
                    }
                    toolchain::said(&toolchain::run(&mut command))
                };
                let errors = |said: &str, reason: &str| {
                    said.lines()
                        .filter(|it| it.contains(": error: ") && it.contains(reason))
                        .count()
                };
                // Nothing but the call is refused.
                assert_eq!(said_of(&["0"]), "", "{compiler}");
                assert_eq!(said_of(&TAKEN), "", "{compiler}");
                let said = said_of(&REFUSED.map(|(call, _)| call));
                for reason in ["", ABSENT] {
                    let count = errors(&said, reason);
                    assert_eq!(count, REFUSED.len(), "{compiler} {level}, {reason}: {said}");
                }
                for (call, reason) in REFUSED {
                    assert!(errors(&said, reason) > 0, "{compiler} {level}, {call}: {said}");
                }
            }
        }
    }
}

/// A compiler that cannot mark a call as an error marks absent functions as unavailable, and
/// accepts the rest.
fn a_compiler_without_the_attribute_refuses_nothing_that_is_there(by: By) {
    let directory = scratch(&format!("without-attribute-{by:?}"));
    let calls = "WSABUF buffer = {0, 0};\n    DWORD count = 0, flags = 0;\n    \
        return WSARecv(s, &buffer, 1, &count, &flags, NULL, NULL) + WSASend(s, &buffer, 1, &count, 0, NULL, NULL) + \
        ReadFile(handle, &flags, 4, &count, NULL) + WriteFile(handle, &flags, 4, &count, NULL) + \
        SetWaitableTimer(handle, NULL, 0, NULL, NULL, FALSE)";
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        for (call, is_refused) in [("0", false), ("CancelSynchronousIo(handle)", true)] {
            fs::write(
                &source,
                format!(
                    "{OURS}int used(SOCKET s, HANDLE handle);\n\
                     int used(SOCKET s, HANDLE handle) {{\n    {calls} + {call};\n}}\n"
                ),
            )
            .unwrap();
            for compiler in by.compilers(language) {
                let mut command = Command::new(&compiler);
                command.arg(format!("-std={}", standards(language)[0])).args(include_flags());
                command.args(["-DCP_NO_ERROR_ATTRIBUTE", "-c", "-o", "/dev/null"]).arg(&source);
                let said = toolchain::said(&toolchain::run(&mut command));
                assert_eq!(said.contains("unavailable"), is_refused, "{compiler}: {said}");
                assert_eq!(said.contains("error"), is_refused, "{compiler}: {said}");
            }
        }
    }
}

/// In both languages, calling an undeclared function is an error, unless the program asks for the compiler's guess.
fn a_call_without_a_declaration_is_refused(by: By) {
    let directory = scratch(&format!("undeclared-{by:?}"));
    for (language, name) in [(Language::C11, "unit.c"), (Language::Cxx17, "unit.cpp")] {
        let source = directory.join(name);
        for header in by.of(&["windows.h", "winsock2.h"]) {
            let call = "int used(void);\nint used(void) { return WSANothing(1); }\n";
            fs::write(&source, format!("#include <{header}>\n{call}")).unwrap();
            for compiler in by.compilers(language) {
                for (flag, is_taken) in [("-O0", false), ("-DCP_IMPLICIT_FUNCTIONS", true)] {
                    let mut command = Command::new(&compiler);
                    command.arg(format!("-std={}", standards(language)[0])).args(include_flags());
                    command.args([flag, "-c", "-o", "/dev/null"]).arg(&source);
                    let output = toolchain::run(&mut command);
                    let said = toolchain::said(&output);
                    // From GCC 14 and Clang 16 on, C makes it an error in any case.
                    let may_be = is_taken && language == Language::C11;
                    assert!(may_be || !output.status.success(), "{compiler} {flag}: {said}");
                    assert!(may_be || said.contains("WSANothing"), "{compiler} {flag}: {said}");
                }
            }
        }
    }
}

/// Each absent function that the headers declare is refused.
#[test]
fn each_function_that_is_not_there_is_refused() {
    for header in ["cp_absent.h", "cp_socket_absent.h", "mswsock.h", "winternl.h"] {
        let path = package().join("compat/include").join(header);
        let text = fs::read_to_string(path).unwrap();
        let mut count = 0;
        let mut before = "";
        for line in text.lines() {
            if let Some(at) = line.find("extern ")
                && !line.contains("extern \"C\"")
            {
                let marked = if at == 0 { before } else { &line[..at] };
                assert!(marked.starts_with("CP_ABSENT("), "{header}: {line}");
                count += 1;
            }
            before = line;
        }
        assert!(count >= 1, "{header} has {count}");
    }
}

/// With wide names.
fn unicode_names_are_the_wide_ones(by: By) {
    let text = format!(
        "#include <windows.h>\n#include <winsock2.h>\n{USES}\
         HMODULE wide(void);\nHMODULE wide(void) {{ return LoadLibrary(TEXT(\"ws2_32.dll\")); }}\n"
    );
    compiles(by, "unicode", &text, &[&["-DUNICODE", "-D_UNICODE"], &[]]);
}

/// Uses the C++ standard library with the headers.
fn the_standard_library_of_cxx_may_come_before_and_after(by: By) {
    let standard = "#include <algorithm>\n#include <atomic>\n#include <chrono>\n#include <condition_variable>\n\
        #include <functional>\n#include <iostream>\n#include <limits>\n#include <map>\n#include <memory>\n\
        #include <mutex>\n#include <string>\n#include <thread>\n#include <unordered_map>\n#include <vector>\n";
    let directory = scratch(&format!("standard-library-{by:?}"));
    let source = directory.join("unit.cpp");
    for text in [format!("{standard}{OURS}{USES}"), format!("{OURS}{standard}{USES}")] {
        fs::write(&source, text).unwrap();
        for compiler in by.compilers(Language::Cxx17) {
            for flags in by.of(&[&[][..], FOR_WINDOWS[0]]) {
                compile(by, &compiler, "c++17", flags, &source);
            }
        }
    }
}

/// Functions that are inline or macros on the reference, too, or belong to its C runtime. No module here has them.
const IN_NO_MODULE: [&str; 9] = [
    "ConnectEx",
    "DisconnectEx",
    "RtlSecureZeroMemory",
    "SocketNotificationRetrieveEvents",
    "TransmitPackets",
    "gai_strerrorA",
    "gai_strerrorW",
    "htonll",
    "ntohll",
];
const HEADERS_IN_NO_MODULE: [&str; 6] =
    ["conio.h", "cp_atomics.h", "cp_crt.h", "io.h", "process.h", "strsafe.h"];
/// Functions of Winsock that the system's headers declare.
const OF_THE_SYSTEM: [&str; 19] = [
    "freeaddrinfo",
    "getaddrinfo",
    "gethostbyaddr",
    "gethostbyname",
    "gethostname",
    "getnameinfo",
    "getprotobyname",
    "getprotobynumber",
    "getservbyname",
    "getservbyport",
    "htonl",
    "htons",
    "inet_addr",
    "inet_ntoa",
    "inet_ntop",
    "inet_pton",
    "ntohl",
    "ntohs",
    "select",
];

/// The functions that a header defines or maps, with the reference's names.
fn functions_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, is_inline) in [("CP_INLINE ", true), ("static inline ", true), ("\nextern ", false)]
    {
        for (at, _) in text.match_indices(start) {
            let line = text[..at].rfind('\n').map_or(0, |it| it + 1);
            let is_directive = is_inline && text[line..].starts_with('#');
            let rest = &text[at + start.len()..];
            let (Some(parenthesis), false) = (rest.find('('), is_directive) else {
                continue;
            };
            let name = |text: &str| {
                let begin = text.rfind(|it: char| !(it.is_ascii_alphanumeric() || it == '_'));
                text[begin.map_or(0, |it| it + 1)..].to_owned()
            };
            let mut own = name(rest[..parenthesis].trim_end());
            // `WINAPI(name)(...)` keeps the compiler from expanding a macro of that name.
            if own == "WINAPI" {
                let inner = &rest[parenthesis + 1..];
                own = name(&inner[..inner.find(')').unwrap()]);
            }
            // Only the mapped calls are this library's.
            let declaration = &rest[..rest.find(';').unwrap_or(rest.len())];
            let is_ours = is_inline || declaration.contains("__asm__(\"cp_");
            let is_pasted = rest[..parenthesis].contains("##");
            if is_ours && !is_pasted && !own.starts_with("cp_") && !found.contains(&own) {
                found.push(own);
            }
        }
    }
    found
}

/// Each function of the headers, with the reference's module that exports it.
fn exported() -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(package().join("compat/include")).unwrap() {
        let entry = entry.unwrap();
        let header = entry.file_name().into_string().unwrap();
        // The folder `sys` comes before the system's own headers.
        if header == "sys" || HEADERS_IN_NO_MODULE.contains(&header.as_str()) {
            continue;
        }
        for name in functions_of(&fs::read_to_string(entry.path()).unwrap()) {
            let module = match header.as_str() {
                _ if name.starts_with("MessageBox") => "user32",
                _ if name.starts_with("time") => "winmm",
                "cp_random.h" => "bcrypt",
                "mswsock.h" => "mswsock",
                "iphlpapi.h" => "iphlpapi",
                "winsock2.h" | "ws2tcpip.h" => "ws2_32",
                _ if header.starts_with("cp_socket_") => "ws2_32",
                _ => "kernel32",
            };
            all.push((name, module));
        }
    }
    all.extend(OF_THE_SYSTEM.map(|name| (name.to_owned(), "ws2_32")));
    all.sort();
    all.dedup();
    all
}

/// Fails if a new function is missing from the tables.
#[test]
fn each_function_of_the_headers_is_found_by_its_name() {
    let all = exported();
    for some in
        ["CreateFileW", "recv", "accept", "WSARecv", "SetWaitableTimer", "AcceptEx", "Sleep"]
    {
        assert!(all.iter().any(|(name, _)| name == some), "the functions were not read: {all:?}");
    }
    assert!(all.len() > 200, "the functions were not read: {}", all.len());
    let rows = all.iter().map(|(name, module)| {
        let module = if IN_NO_MODULE.contains(&name.as_str()) { "" } else { module };
        format!("    {{\"{name}\", \"{module}\"}},\n")
    });
    let rows: String = rows.collect();
    let headers = "#include <ws2tcpip.h>\n#include <iphlpapi.h>\n#include <stdio.h>\n";
    let text = format!(
        "{OURS}{headers}static const struct {{ const char *name, *module; }} all[] = {{\n{rows}}};\n\
         static const char *const modules[] = {{\"ws2_32\", \"kernel32\", \"mswsock\", \"ntdll\", \"iphlpapi\", \
         \"user32\", \"winmm\", \"bcrypt\"}};\n\
         int main(void) {{\n    size_t i, j;\n    int faults = 0;\n\
         \x20   for (i = 0; i < sizeof all / sizeof *all; i++) {{\n\
         \x20       for (j = 0; j < sizeof modules / sizeof *modules; j++) {{\n\
         \x20           int is_found = GetProcAddress(GetModuleHandleA(modules[j]), all[i].name) != NULL;\n\
         \x20           if (is_found != (strcmp(modules[j], all[i].module) == 0)) {{\n\
         \x20               printf(\"%s: %s in %s\\n\", all[i].name, is_found ? \"found\" : \"missing\", modules[j]);\n\
         \x20               faults++;\n            }}\n        }}\n    }}\n    return faults != 0;\n}}\n"
    );
    let directory = scratch("by-name");
    let source = directory.join("all.c");
    fs::write(&source, text).unwrap();
    for build in [Build::of(&[]), Build::of(&[]).in_cxx()] {
        let build = Build { sources: vec![source.clone()], ..build };
        if let Some(program) = build.program(&directory) {
            succeed(&mut Command::new(program));
        }
    }
}

/// A unit that never looks up a function contains no table, and nothing that a table refers to.
#[test]
fn a_unit_that_looks_nothing_up_has_no_table() {
    let directory = scratch("no-table");
    let [source, object] = ["unit.c", "unit.o"].map(|name| directory.join(name));
    let unit = |call: &str| format!("{OURS}int main(void) {{ return {call}; }}\n");
    for (call, has_table) in [
        ("(int)GetLastError()", false),
        ("GetProcAddress(GetModuleHandleA(\"kernel32\"), \"Sleep\") == NULL", true),
    ] {
        fs::write(&source, unit(call)).unwrap();
        let mut command = Command::new(toolchain::cc());
        command.args(["-std=c11", "-O0", "-c"]).args(include_flags()).arg(&source).arg("-o");
        succeed(command.arg(&object));
        let object = fs::read(&object).unwrap();
        let is_named = |name: &[u8]| object.windows(name.len()).any(|it| it == name);
        for name in ["CreateSemaphoreA", "cp_exports_of_windows"] {
            assert_eq!(is_named(name.as_bytes()), has_table, "{name} in {call}");
        }
    }
}
