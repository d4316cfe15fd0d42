//! Containers that grow and shrink a piece at a time: no step of theirs moves or frees megabytes.

mod block_queue;
mod chunk_slab;

pub(crate) use block_queue::BlockQueue;
pub(crate) use chunk_slab::{ChunkSlab, INDICES, SlabCell};
