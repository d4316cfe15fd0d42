//! The sides that are compared, each as its documentation shows it.

mod apalis;
mod graphile;
mod tickwheel;
mod underway;

use apalis::Apalis;
use apalis_postgres::PostgresStorage;
use apalis_redis::RedisStorage;
use apalis_sqlite::SqliteStorage;
use tickwheel::Tickwheel;
use tickwheel_durable::{Postgres, Redis, Sqlite};

use crate::Settings;
use crate::measure::{self, Figure, Queue};
use crate::places::{OnPostgres, OnRedis, OnSqlite, Place};

#[derive(Clone, Copy)]
enum Peer {
    Tickwheel,
    Graphile,
    Apalis,
    Underway,
    RedisTickwheel,
    RedisApalis,
    SqliteTickwheel,
    SqliteApalis,
}

impl Peer {
    const ALL: [Peer; 8] = [
        Peer::Tickwheel,
        Peer::Graphile,
        Peer::Apalis,
        Peer::Underway,
        Peer::RedisTickwheel,
        Peer::RedisApalis,
        Peer::SqliteTickwheel,
        Peer::SqliteApalis,
    ];
}

#[derive(Clone, Copy)]
pub(crate) struct Side {
    peer: Peer,
    is_tuned: bool,
}

impl Side {
    pub(crate) fn all() -> impl Iterator<Item = Side> {
        let both = [false, true];
        Peer::ALL
            .into_iter()
            .flat_map(move |peer| both.map(|is_tuned| Side { peer, is_tuned }))
    }

    pub(crate) fn name(self) -> String {
        let peer = match self.peer {
            Peer::Tickwheel => "tickwheel",
            Peer::Graphile => "graphile",
            Peer::Apalis => "apalis",
            Peer::Underway => "underway",
            Peer::RedisTickwheel => "redis-tickwheel",
            Peer::RedisApalis => "redis-apalis",
            Peer::SqliteTickwheel => "sqlite-tickwheel",
            Peer::SqliteApalis => "sqlite-apalis",
        };
        format!("{peer}{}", if self.is_tuned { "-tuned" } else { "" })
    }

    /// Measures it in a new place.
    pub(crate) fn run(self, settings: &Settings) -> Vec<Figure> {
        match self.peer {
            Peer::Tickwheel => self.on::<OnPostgres, Tickwheel<Postgres>>(settings),
            Peer::Graphile => self.on::<OnPostgres, graphile::Graphile>(settings),
            Peer::Apalis => self.on::<OnPostgres, Apalis<PostgresStorage<u64>>>(settings),
            Peer::Underway => self.on::<OnPostgres, underway::Underway>(settings),
            Peer::RedisTickwheel => self.on::<OnRedis, Tickwheel<Redis>>(settings),
            Peer::RedisApalis => self.on::<OnRedis, Apalis<RedisStorage<u64>>>(settings),
            Peer::SqliteTickwheel => self.on::<OnSqlite, Tickwheel<Sqlite>>(settings),
            Peer::SqliteApalis => self.on::<OnSqlite, Apalis<SqliteStorage<u64>>>(settings),
        }
    }

    fn on<P: Place, Q: Queue>(self, settings: &Settings) -> Vec<Figure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("the runtime starts");
        let place = runtime.block_on(P::start(&settings.appendfsync));
        let figures = runtime.block_on(measure::run::<P, Q>(&place, self.is_tuned, settings.storm));
        runtime.shutdown_background();
        figures
    }
}
