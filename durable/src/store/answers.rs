//! How large answers are.

use super::{Fired, Stored};

/// A store adds no more rows to an answer of [`fire`](super::Store::fire) or [`list`](super::Store::list) that has so many bytes
/// of keys and values: 1 MiB. The caller asks for the rest.
pub const ANSWER_BYTES: usize = 1 << 20;

/// Adds up the keys and values of an answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerSize(usize);

impl AnswerSize {
    /// Whether no more rows are added.
    pub(crate) fn is_enough(&self) -> bool {
        self.0 >= ANSWER_BYTES
    }

    pub(crate) fn add(&mut self, fired: &[Fired]) {
        let bytes = fired.iter().map(|row| row.key.len() + row.value.len());
        self.0 += bytes.sum::<usize>();
    }

    /// Whether a row that comes next is part of the answer, which then has it.
    pub(crate) fn takes(&mut self, row: &Stored) -> bool {
        let takes = !self.is_enough();
        self.0 += row.key.len() + row.value.len();
        takes
    }
}
