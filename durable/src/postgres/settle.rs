//! Batches of claims that are to be settled. They are cut and sent as writes are, by token.

use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

use super::lanes::Call;
use super::read::{micros, time};
use super::session::{Parameters, Session};
use super::space::{NearParameters, Space};
use super::statements as sql;
use super::write::parts;
use crate::store::{Armed, How, Near, Settle, Settled, Version};

pub(super) struct SettleCall<'a> {
    pub(super) space: &'a Space,
    pub(super) settles: Vec<Settle>,
    pub(super) near: Near,
}

/// A part of a batch, in columns.
#[derive(Default)]
struct Part {
    /// The tokens, in their order, with the numbers of their answers.
    numbers: Vec<(i64, usize)>,
    acks: Vec<i64>,
    extended: (Vec<i64>, Vec<i64>),
    put_back: (Vec<i64>, Vec<Option<i64>>),
}

impl Part {
    fn new(settles: &[Settle], first: usize) -> Self {
        let mut part = Part::default();
        for (settle, number) in settles.iter().zip(first..) {
            let Version(token) = settle.token;
            part.numbers.push((token, number));
            match settle.how {
                How::Ack => part.acks.push(token),
                How::Extend(lease) => {
                    part.extended.0.push(token);
                    part.extended.1.push(micros(lease));
                }
                How::Again(delay) => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(Some(micros(delay)));
                }
                How::Release => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(None);
                }
                How::Unfire => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(Some(sql::UNFIRE));
                }
            }
        }
        part.numbers.sort_unstable();
        part.acks.sort_unstable();
        part
    }

    fn find(&self, token: i64) -> usize {
        let found = self
            .numbers
            .binary_search_by_key(&token, |(token, _)| *token);
        self.numbers[found.expect("the answer is about a token of the batch")].1
    }
}

/// A part, a statement, what it takes, and whether its rows are of claims that were put back.
type Query<'a> = (&'a Part, &'static str, Vec<&'a (dyn ToSql + Sync)>, bool);

impl Call for SettleCall<'_> {
    type Answer = Vec<Settled>;

    async fn run(&self, session: &Session) -> Result<Vec<Settled>, Error> {
        let mut first = 0;
        let mut batch = Vec::new();
        for part in parts(&self.settles, |settle| settle.token, |_| 0) {
            batch.push(Part::new(part, first));
            first += part.len();
        }
        let near = NearParameters::from(self.near);
        let id = &self.space.id;
        let mut queries: Vec<Query<'_>> = Vec::new();
        for part in &batch {
            if !part.acks.is_empty() {
                queries.push((part, sql::ACK, vec![id, &part.acks], false));
            }
            let (tokens, leases) = &part.extended;
            if !tokens.is_empty() {
                queries.push((part, sql::EXTEND, vec![id, tokens, leases], false));
            }
            let (tokens, delays) = &part.put_back;
            if !tokens.is_empty() {
                let (window, loader) = (&near.window, &near.loader);
                let channel = &self.space.channel;
                let parameters: Vec<&(dyn ToSql + Sync)> =
                    vec![id, window, loader, channel, tokens, delays];
                queries.push((part, sql::PUT_BACK, parameters, true));
            }
        }
        let requests: Vec<(&'static str, &Parameters<'_>)> = queries
            .iter()
            .map(|(_, sql, parameters, _)| (*sql, parameters.as_slice()))
            .collect();
        let answers = session.transaction(&requests).await?;
        let mut settled = vec![Settled::Lost; self.settles.len()];
        for ((part, _, _, puts_back), rows) in queries.iter().zip(&answers) {
            for row in rows {
                let armed = *puts_back && row.get::<_, bool>(4);
                settled[part.find(row.get(0))] = if armed {
                    Settled::Armed(Armed {
                        version: Version(row.get(1)),
                        due: time(row.get(2)),
                        loaded: row.get(3),
                    })
                } else {
                    Settled::Done
                };
            }
        }
        Ok(settled)
    }
}
