//! The sides that are compared, each as its documentation shows it.

mod apalis;
mod graphile;
mod tickwheel;

use crate::measure::{self, Figure};
use crate::server::Server;

#[derive(Clone, Copy)]
enum Peer {
    Tickwheel,
    Graphile,
    Apalis,
}

#[derive(Clone, Copy)]
pub(crate) struct Side {
    peer: Peer,
    is_tuned: bool,
}

impl Side {
    pub(crate) const ALL: [Side; 6] = [
        Side::of(Peer::Tickwheel, false),
        Side::of(Peer::Tickwheel, true),
        Side::of(Peer::Graphile, false),
        Side::of(Peer::Graphile, true),
        Side::of(Peer::Apalis, false),
        Side::of(Peer::Apalis, true),
    ];

    const fn of(peer: Peer, is_tuned: bool) -> Self {
        Side { peer, is_tuned }
    }

    pub(crate) fn name(self) -> &'static str {
        match (self.peer, self.is_tuned) {
            (Peer::Tickwheel, false) => "tickwheel",
            (Peer::Tickwheel, true) => "tickwheel-tuned",
            (Peer::Graphile, false) => "graphile",
            (Peer::Graphile, true) => "graphile-tuned",
            (Peer::Apalis, false) => "apalis",
            (Peer::Apalis, true) => "apalis-tuned",
        }
    }
}

/// Measures a side on a new server.
pub(crate) fn run(side: Side) -> Vec<Figure> {
    let server = Server::start(&[
        "shared_buffers=512MB",
        "max_wal_size=4GB",
        "shared_preload_libraries=pg_stat_statements",
    ]);
    let server = server.expect("PostgreSQL is installed");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime starts");
    let is_tuned = side.is_tuned;
    let figures = runtime.block_on(async {
        match side.peer {
            Peer::Tickwheel => measure::run::<tickwheel::Tickwheel>(&server, is_tuned).await,
            Peer::Graphile => measure::run::<graphile::Graphile>(&server, is_tuned).await,
            Peer::Apalis => measure::run::<apalis::Apalis>(&server, is_tuned).await,
        }
    });
    runtime.shutdown_background();
    figures
}
