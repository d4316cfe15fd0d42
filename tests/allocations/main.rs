//! Allocations, and the memory that is freed again.
//!
//! It is a separate binary because of its allocator, which counts the allocations of each thread.

mod hot_paths;
mod memory;
#[path = "../it/support/mod.rs"]
mod support;
