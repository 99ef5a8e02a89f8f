//! Programs that must not compile with `completion-port`: `tests/cases`. A separate package, since
//! such tests build all dependencies of their package again.
