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
    pub(crate) fn run(self, settings: &Settings, figures: &mut Vec<Figure>) {
        match self.peer {
            Peer::Tickwheel => self.on::<OnPostgres, Tickwheel<Postgres>>(settings, figures),
            Peer::Graphile => self.on::<OnPostgres, graphile::Graphile>(settings, figures),
            Peer::Apalis => self.on::<OnPostgres, Apalis<PostgresStorage<u64>>>(settings, figures),
            Peer::Underway => self.on::<OnPostgres, underway::Underway>(settings, figures),
            Peer::RedisTickwheel => self.on::<OnRedis, Tickwheel<Redis>>(settings, figures),
            Peer::RedisApalis => self.on::<OnRedis, Apalis<RedisStorage<u64>>>(settings, figures),
            Peer::SqliteTickwheel => self.on::<OnSqlite, Tickwheel<Sqlite>>(settings, figures),
            Peer::SqliteApalis => {
                self.on::<OnSqlite, Apalis<SqliteStorage<u64>>>(settings, figures);
            }
        }
    }

    fn on<P: Place, Q: Queue>(self, settings: &Settings, figures: &mut Vec<Figure>) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("the runtime starts");
        let place = runtime.block_on(P::start(&settings.appendfsync));
        let measured = measure::run::<P, Q>(&place, self.is_tuned, settings.storm, figures);
        runtime.block_on(measured);
        runtime.shutdown_background();
    }
}
