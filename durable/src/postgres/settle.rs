//! Batches of claims that are to be settled. They are cut and sent as writes are, by token.
//!
//! One statement that makes no waiting row and no dead one commits by itself. Otherwise a
//! transaction locks all claims first. Claims that are put back or die need the locks of their keys
//! before that. Claims of keys that a transaction of a user has locked are left out, but for
//! extensions of their leases.

use std::collections::HashSet;
use std::error::Error as _;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::Postgres;
use super::lanes::Lane;
use super::numbers::time;
use super::session::Parameters;
use super::space::{NearParameters, Space};
use super::statements as sql;
use super::write::rounds;
use crate::store::{
    Armed, InstanceId, Namespace, Settle, Settled, Settlement, StoreError, Terms, Version, micros,
};

type Errors<'a> = Vec<Option<&'a str>>;

/// Tokens, delays, errors, and the ids that mark those which are left to other instances.
type PutBack<'a> = (Vec<i64>, Vec<Option<i64>>, Errors<'a>, Vec<Option<i64>>);

/// A round of a batch, in columns that begin with the tokens.
#[derive(Default)]
struct Round<'a> {
    /// The tokens, in their order, with the indices of their results.
    numbers: Vec<(i64, usize)>,
    acks: Vec<i64>,
    /// With the leases.
    extended: (Vec<i64>, Vec<i64>, Errors<'a>),
    dead: (Vec<i64>, Errors<'a>),
    put_back: PutBack<'a>,
    /// Each id that leaves some to others, and for how long it lives.
    leavers: (Vec<i64>, Vec<i64>),
}

impl<'a> Round<'a> {
    /// The settles, with the indices of their results.
    fn new(settles: &[(&'a Settle, usize)]) -> Self {
        let mut round = Round::default();
        let (mut extended, mut dead) = (Vec::new(), Vec::new());
        for &(settle, number) in settles {
            let Version(token) = settle.token;
            round.numbers.push((token, number));
            let error = settle.error.as_deref();
            let mut left_by = None;
            let delay = match settle.settlement {
                Settlement::Ack => {
                    round.acks.push(token);
                    continue;
                }
                Settlement::Extend(lease) => {
                    extended.push((token, micros(lease), error));
                    continue;
                }
                Settlement::Dead => {
                    dead.push((token, error));
                    continue;
                }
                Settlement::RetryAfter(delay) => Some(micros(delay)),
                Settlement::Release => None,
                Settlement::Unfire => Some(sql::unfire(Duration::ZERO)),
                Settlement::Leave(left) => {
                    let InstanceId(id) = left.by.left();
                    left_by = Some(id);
                    if !round.leavers.0.contains(&id) {
                        round.leavers.extend([(id, micros(left.alive))]);
                    }
                    Some(sql::unfire(left.pause))
                }
            };
            round.put_back.extend([(token, delay, error, left_by)]);
        }
        round.numbers.sort_unstable();
        round.acks.sort_unstable();
        extended.sort_unstable();
        dead.sort_unstable();
        round.extended.extend(extended);
        round.dead.extend(dead);
        round
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
    Locked,
    Settled(&'a Round<'a>),
    PutBack(&'a Round<'a>),
}

type Query<'a> = (&'static str, Vec<&'a (dyn ToSql + Sync)>, Answers<'a>);

/// The statements of a round.
fn round_queries<'a>(round: &'a Round<'a>, head: &[&'a (dyn ToSql + Sync); 4]) -> Vec<Query<'a>> {
    let id = head[0];
    let mut queries: Vec<Query<'a>> = Vec::new();
    if !round.acks.is_empty() {
        queries.push((sql::ACK, vec![id, &round.acks], Answers::Settled(round)));
    }
    let (tokens, leases, errors) = &round.extended;
    if !tokens.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![id, tokens, leases, errors];
        queries.push((sql::EXTEND, parameters, Answers::Settled(round)));
    }
    let (tokens, errors) = &round.dead;
    if !tokens.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![id, tokens, errors];
        queries.push((sql::DIE, parameters, Answers::Settled(round)));
    }
    let (leavers, lives) = &round.leavers;
    if !leavers.is_empty() {
        let parameters: Vec<&(dyn ToSql + Sync)> = vec![id, leavers, lives];
        queries.push((sql::LEAVERS, parameters, Answers::Nothing));
    }
    let (tokens, delays, errors, left_by) = &round.put_back;
    if !tokens.is_empty() {
        let mut parameters = head.to_vec();
        parameters.extend::<[&'a (dyn ToSql + Sync); 4]>([tokens, delays, errors, left_by]);
        queries.push((sql::PUT_BACK, parameters, Answers::PutBack(round)));
    }
    queries
}

pub(super) async fn settle(
    postgres: &Postgres,
    namespace: Namespace,
    mut settles: Vec<Settle>,
    near: Terms,
) -> Result<Vec<Settled>, StoreError> {
    let space = postgres.space(&namespace).await?;
    match send(postgres, &space, &settles, near).await {
        // A question mark stands for each character of an error text that is not ASCII.
        Err(error) if is_untranslatable(&error) => {
            for text in settles
                .iter_mut()
                .filter_map(|settle| settle.error.as_mut())
            {
                *text = text.replace(|letter: char| !letter.is_ascii(), "?");
            }
            send(postgres, &space, &settles, near).await
        }
        settled => settled,
    }
}

/// Whether the encoding of the database lacks a character of a text.
fn is_untranslatable(error: &StoreError) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref());
    cause.and_then(tokio_postgres::Error::code) == Some(&SqlState::UNTRANSLATABLE_CHARACTER)
}

async fn send(
    postgres: &Postgres,
    space: &Space,
    settles: &[Settle],
    near: Terms,
) -> Result<Vec<Settled>, StoreError> {
    let (id, near) = (&space.id, NearParameters::from(near));
    let head: [&(dyn ToSql + Sync); 4] = [id, &near.window, &near.loader, &space.channel];
    let needs_key =
        |settle: &&Settle| !matches!(settle.settlement, Settlement::Ack | Settlement::Extend(_));
    let held = settles.iter().filter(needs_key);
    let held: Vec<_> = held.map(|settle| settle.token.0).collect();
    let all: Vec<_> = settles.iter().zip(0..).collect();
    let batch = rounds(&all, |(settle, _)| settle.token);
    let batch: Vec<_> = batch.map(Round::new).collect();
    let mut queries: Vec<Query<'_>> = Vec::new();
    for round in &batch {
        queries.extend(round_queries(round, &head));
    }
    let mut tokens: Vec<_> = settles.iter().map(|settle| settle.token.0).collect();
    tokens.sort_unstable();
    if queries.len() > 1 {
        queries.insert(0, (sql::LOCK_CLAIMS, vec![id, &tokens], Answers::Nothing));
    }
    if !held.is_empty() {
        queries.insert(0, (sql::HOLD_CLAIMED, vec![id, &held], Answers::Locked));
    }
    let requests: Vec<(&'static str, &Parameters<'_>)> = queries
        .iter()
        .map(|(sql, parameters, _)| (*sql, parameters.as_slice()))
        .collect();
    let answers = postgres
        .lanes()
        .transaction(Lane::Settle, &requests)
        .await?;
    let mut settled = vec![Settled::Lost; settles.len()];
    for ((_, _, means), rows) in queries.iter().zip(&answers) {
        match means {
            Answers::Nothing => {}
            Answers::Locked => {
                let locked: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
                for (settle, settled) in settles.iter().zip(&mut settled) {
                    let is_extension = matches!(settle.settlement, Settlement::Extend(_));
                    if !is_extension && locked.contains(&settle.token.0) {
                        *settled = Settled::Locked;
                    }
                }
            }
            Answers::Settled(round) => {
                for row in rows {
                    settled[round.find(row.get(0))] = Settled::Done;
                }
            }
            Answers::PutBack(round) => {
                for row in rows {
                    settled[round.find(row.get(0))] = put_back_as(row);
                }
            }
        }
    }
    Ok(settled)
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
