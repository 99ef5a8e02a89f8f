//! `cport completions`, as a shell uses it.

#[cfg(target_os = "linux")]
use std::process::Command;

use crate::common::{cport, run};

/// Bash's completions after these words. It reads a script from a descriptor, by a name that only
/// Unix has.
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
