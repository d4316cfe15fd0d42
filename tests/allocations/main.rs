//! Allocations, and the memory that is freed again.
//!
//! A binary of its own, since it has an allocator of its own: one that counts, for each thread, what it hands out.

mod hot_paths;
mod memory;
#[path = "../it/support/mod.rs"]
mod support;
