//! The object behind a handle of this library on Windows: a port.

use std::sync::{Arc, OnceLock};

use crate::table::Table;
use crate::windows::port::CompletionPort;

pub(crate) struct Object(Arc<CompletionPort>);

impl Object {
    /// A new port.
    pub(crate) fn of_port(port: CompletionPort) -> Self {
        Self(Arc::new(port))
    }

    /// The port.
    pub(crate) fn port(&self) -> Option<&Arc<CompletionPort>> {
        Some(&self.0)
    }
}

/// The handles of this process.
pub(crate) fn handles() -> &'static Table<Object> {
    static TABLE: OnceLock<Box<Table<Object>>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(None))
}
