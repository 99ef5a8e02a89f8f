//! The attribute `main`: each shape of function. What it refuses is in `crates/compile-fail`.

use std::process::{ExitCode, Termination};

use completion_port_runtime::{Handle, spawn};

mod inner {
    /// It is documented, visible outside of its module, and returns nothing.
    #[completion_port_runtime::main]
    pub(super) async fn visible() {
        assert!(completion_port_runtime::Handle::try_current().is_some());
    }
}

#[completion_port_runtime::main]
async fn returns_a_result() -> Result<u32, std::num::ParseIntError> {
    let text = spawn(async { "7" }).await.unwrap();
    let seven: u32 = text.parse()?;
    // `?` and `return` end the function, not the caller.
    if seven == 7 {
        return "nothing".parse::<u32>();
    }
    Ok(seven)
}

#[completion_port_runtime::main]
async fn returns_what_terminates() -> impl Termination {
    ExitCode::from(3)
}

#[completion_port_runtime::main]
async fn never_returns() -> ! {
    std::panic::resume_unwind(Box::new("ended"))
}

#[completion_port_runtime::main(
    concurrency = 1 + 1,
    thread_limit = 5,
    thread_name = String::from("named"),
    thread_stack_size = 256 * 1024,
    crate = completion_port_runtime
)]
async fn has_settings() -> (usize, Option<String>) {
    let name = spawn(async { std::thread::current().name().map(str::to_owned) });
    (Handle::current().metrics().threads, name.await.unwrap())
}

#[completion_port_runtime::main(concurrency = 1)]
async fn has_a_comma() -> usize {
    Handle::current().metrics().threads
}

/// Attributes stay on the function.
#[must_use = "this is deprecated, too"]
#[deprecated]
#[allow(unused_mut, clippy::let_and_return, reason = "the attribute is kept")]
#[completion_port_runtime::main]
async fn has_attributes() -> [u8; 1 + 1] {
    let mut both = [1, 2];
    both
}

#[test]
fn each_shape_runs() {
    inner::visible();
    assert!(returns_a_result().is_err());
    let code = returns_what_terminates().report();
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(3)));
    let panic = std::panic::catch_unwind(|| -> () { never_returns() }).unwrap_err();
    assert_eq!(*panic.downcast::<&str>().unwrap(), "ended");
    // Two that run tasks, and one that waits; more on a busy machine.
    let (threads, name) = has_settings();
    assert!((3..=5).contains(&threads), "{threads} threads");
    assert_eq!(name.unwrap(), "named");
    assert!(has_a_comma() >= 2);
    #[allow(deprecated, reason = "the attribute is kept")]
    let both = has_attributes();
    assert_eq!(both, [1, 2]);
}
