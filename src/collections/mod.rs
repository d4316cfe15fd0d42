//! Containers that grow and shrink a piece at a time: no step of theirs moves or frees megabytes.

mod chunk_slab;

pub(crate) use chunk_slab::{Cell, ChunkSlab, INDICES};
