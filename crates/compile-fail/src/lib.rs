//! What must not compile with `completion-port`: `tests/cases`. A package of its own, since each test of this
//! kind builds all that its package depends on once more.
