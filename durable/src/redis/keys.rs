//! The keys of a namespace.

use crate::store::Namespace;

/// The key of what is known about a namespace. The others begin with it. The braces put all of them
/// into one slot of a cluster.
pub(super) fn key_of(namespace: &Namespace) -> String {
    format!("tickwheel:{{{namespace}}}")
}

/// A key of the namespace that never exists. A node that is moving the slot runs no script that
/// names it.
pub(super) fn absent_key_of(namespace: &Namespace) -> String {
    format!("{}:absent", key_of(namespace))
}
