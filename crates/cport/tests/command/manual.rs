//! `cport completions` and `cport man`, as a shell and a reader use them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{cport, run};

/// What bash offers behind these words. It reads a script from a descriptor, by a name that only Unix has.
#[cfg(target_os = "linux")]
fn offered(words: &[&str]) -> Vec<String> {
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                  _cport cport \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
                  printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_cport")])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(offered(&["cport", "ec"]), ["echo"]);
    assert_eq!(offered(&["cport", "echo", "--dr"]), ["--drain"]);
    assert_eq!(offered(&["cport", "bench", "--qu"]), ["--quick"]);
    assert_eq!(offered(&["cport", "bench", "report", "--ne"]), ["--nearer"]);
    assert_eq!(offered(&["cport", "completions", "fi"]), ["fish"]);
}

#[test]
fn each_shell_gets_a_script_and_no_other_word_does() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(cport(&["completions", shell]));
        assert!(ended.status.success() && ended.stdout.contains("drain"), "{ended:?}");
        assert_eq!(ended.stderr, "");
    }
    let ended = run(cport(&["completions", "csh"]));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("[possible values: bash"), "{ended:?}");
}

/// Groff has nothing to complain about.
fn is_typeset(page: &Path) {
    match Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(page).output() {
        Err(_) => println!("SKIPPED the manual as groff reads it: there is no groff"),
        Ok(output) => {
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let ended = run(cport(&["man"]));
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stdout.contains(".TH cport 1"), "{ended:?}");
    assert!(ended.stdout.contains("cport\\-echo(1)"), "{ended:?}");

    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("man1");
    let _ = fs::remove_dir_all(&directory);
    let ended = run(cport(&["man", directory.to_str().unwrap()]));
    assert!(ended.status.success(), "{ended:?}");
    for (page, words) in [
        ("cport.1", "Exit codes"),
        ("cport-demo.1", "concurrency"),
        ("cport-echo.1", "SIGUSR1"),
        ("cport-bench.1", "rounds"),
        ("cport-bench-report.1", "nearer"),
        ("cport-completions.1", "fish"),
    ] {
        assert!(ended.stdout.contains(page), "{page}: {ended:?}");
        let text = fs::read_to_string(directory.join(page)).unwrap();
        assert!(text.contains(words), "{words} in {page}: {text}");
        assert!(!text.contains("help(1)"), "there is no such page: {text}");
        is_typeset(&directory.join(page));
    }
    // Below a page there is no place for others.
    let nowhere = directory.join("cport.1").join("nowhere");
    let refusal = format!("cannot write {}: ", nowhere.display());
    run(cport(&["man", nowhere.to_str().unwrap()])).assert_refused(&refusal);
}
