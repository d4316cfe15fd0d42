//! The adapters with their real peers.

mod hyper;
