//! What must not compile: the deregistration rules that the compiler enforces.

/// The compiler that has written the expected errors. Others use different words.
const WRITTEN_WITH: &str = "1.95.";

#[test]
fn what_the_rules_forbid_does_not_compile() {
    let version = std::process::Command::new(option_env!("RUSTC").unwrap_or("rustc"))
        .arg("--version")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    if !version.starts_with(&format!("rustc {WRITTEN_WITH}")) || version.contains("nightly") {
        eprintln!(
            "SKIPPED compile_fail: the expected errors are in the words of rustc {WRITTEN_WITH}x, \
             this is {version:?}; the compile_fail examples in the documentation still hold"
        );
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/cases/*.rs");
}
