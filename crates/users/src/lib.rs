//! Servers as separate programs, and clients that behave badly towards them.

pub mod build;
pub mod clients;
pub mod page;
pub mod server;
