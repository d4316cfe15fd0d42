//! Batches of claims that are to be settled. They are cut and sent as writes are, by token.
//!
//! One statement that makes no waiting row commits by itself. Otherwise a transaction first takes the locks of the keys of
//! what is put back, and locks all claims.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::lanes::Call;
use super::read::{micros, time};
use super::session::{Parameters, Session};
use super::space::{NearParameters, Space};
use super::statements as sql;
use super::write::parts;
use crate::store::{Armed, LoadWindow, Settle, Settled, Settlement, Version};

pub(super) struct SettleCall<'a> {
    pub(super) space: &'a Space,
    pub(super) settles: Vec<Settle>,
    pub(super) near: LoadWindow,
}

/// A part of a batch, in columns.
#[derive(Default)]
struct Part {
    /// The tokens, in their order, with the indices of their results.
    numbers: Vec<(i64, usize)>,
    acks: Vec<i64>,
    extended: (Vec<i64>, Vec<i64>),
    put_back: (Vec<i64>, Vec<Option<i64>>),
}

impl Part {
    fn new(settles: &[Settle], first: usize) -> Self {
        let mut part = Part::default();
        let mut extended = Vec::new();
        for (settle, number) in settles.iter().zip(first..) {
            let Version(token) = settle.token;
            part.numbers.push((token, number));
            match settle.settlement {
                Settlement::Ack => part.acks.push(token),
                Settlement::Extend(lease) => extended.push((token, micros(lease))),
                Settlement::RetryAfter(delay) => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(Some(micros(delay)));
                }
                Settlement::Release => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(None);
                }
                Settlement::Unfire => {
                    part.put_back.0.push(token);
                    part.put_back.1.push(Some(sql::UNFIRE));
                }
            }
        }
        part.numbers.sort_unstable();
        part.acks.sort_unstable();
        extended.sort_unstable();
        part.extended = extended.into_iter().unzip();
        part
    }

    fn find(&self, token: i64) -> usize {
        let found = self
            .numbers
            .binary_search_by_key(&token, |(token, _)| *token);
        self.numbers[found.expect("the answer is about a token of the batch")].1
    }
}

/// The meaning of a statement's rows.
enum Answers<'a> {
    Nothing,
    Settled(&'a Part),
    PutBack(&'a Part),
}

type Query<'a> = (&'static str, Vec<&'a (dyn ToSql + Sync)>, Answers<'a>);

/// The statements of a part.
fn part_queries<'a>(part: &'a Part, head: &[&'a (dyn ToSql + Sync); 4]) -> Vec<Query<'a>> {
    let id = head[0];
    let mut queries: Vec<Query<'a>> = Vec::new();
    if !part.acks.is_empty() {
        queries.push((sql::ACK, vec![id, &part.acks], Answers::Settled(part)));
    }
    let (tokens, leases) = &part.extended;
    if !tokens.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![id, tokens, leases];
        queries.push((sql::EXTEND, parameters, Answers::Settled(part)));
    }
    let (tokens, delays) = &part.put_back;
    if !tokens.is_empty() {
        let mut parameters = head.to_vec();
        parameters.extend::<[&'a (dyn ToSql + Sync); 2]>([tokens, delays]);
        queries.push((sql::PUT_BACK, parameters, Answers::PutBack(part)));
    }
    queries
}

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
        let head: [&(dyn ToSql + Sync); 4] = [id, &near.window, &near.loader, &self.space.channel];
        let mut queries: Vec<Query<'_>> = Vec::new();
        for part in &batch {
            queries.extend(part_queries(part, &head));
        }
        let mut tokens: Vec<_> = self.settles.iter().map(|s| s.token.0).collect();
        tokens.sort_unstable();
        let put_back = batch
            .iter()
            .flat_map(|part| part.put_back.0.iter().copied());
        let put_back: Vec<_> = put_back.collect();
        if queries.len() > 1 {
            queries.insert(0, (sql::LOCK_CLAIMS, vec![id, &tokens], Answers::Nothing));
        }
        if !put_back.is_empty() {
            queries.insert(
                0,
                (sql::HOLD_CLAIMED, vec![id, &put_back], Answers::Nothing),
            );
        }
        let requests: Vec<(&'static str, &Parameters<'_>)> = queries
            .iter()
            .map(|(sql, parameters, _)| (*sql, parameters.as_slice()))
            .collect();
        let answers = session.transaction(&requests).await?;
        let mut settled = vec![Settled::Lost; self.settles.len()];
        for ((_, _, means), rows) in queries.iter().zip(&answers) {
            match means {
                Answers::Nothing => {}
                Answers::Settled(part) => {
                    for row in rows {
                        settled[part.find(row.get(0))] = Settled::Done;
                    }
                }
                Answers::PutBack(part) => {
                    for row in rows {
                        settled[part.find(row.get(0))] = put_back_as(row);
                    }
                }
            }
        }
        Ok(settled)
    }
}

/// The outcome for a claim that was put back.
fn put_back_as(row: &Row) -> Settled {
    let arms: bool = row.get(4);
    if !arms {
        return Settled::Done;
    }
    Settled::Armed(Armed {
        version: Version(row.get(1)),
        due: time(row.get(2)),
        loaded: row.get(3),
    })
}
