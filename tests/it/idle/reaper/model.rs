//! A hundred thousand simulated connections against an oracle that knows when each was last active,
//! under the paused clock: none is reaped early, none late, none twice, and none forgotten.

use std::time::Duration;

use tickwheel::{BusyGuard, Expirations, Expired, Reaper, TimerWheel, WatchGuard};
use tokio::time::{self, Instant};

use crate::support::{Numbers, ms};

const T: Duration = ms(10);

/// The oracle's record of one connection.
struct Connection {
    last: Instant,
    guards: Vec<BusyGuard>,
    /// `None` once it was dropped.
    watch: Option<WatchGuard>,
    is_reaped: bool,
}

/// The operations on connections between two steps of the clock.
struct Load {
    touches: usize,
    guards: usize,
    drops: usize,
    opens: usize,
}

struct Simulation {
    wheel: TimerWheel,
    reaper: Reaper<usize, u64>,
    expirations: Expirations<usize, u64>,
    idle: Duration,
    /// How late the actor may be.
    lag: Duration,
    random: Numbers,
    connections: Vec<Connection>,
    touched: u64,
    reaped: usize,
    dropped: usize,
    /// The connections that are watched and held by a guard.
    busy: usize,
}

impl Simulation {
    fn new(seed: u64, idle: Duration, connections: usize) -> Self {
        println!("seed {seed}");
        let wheel = TimerWheel::builder().tick(T).start().expect("it starts");
        let (reaper, expirations) = wheel.reaper(idle);
        let mut simulation = Simulation {
            wheel,
            reaper,
            expirations,
            idle,
            lag: Duration::ZERO,
            random: Numbers(seed),
            connections: Vec::new(),
            touched: 0,
            reaped: 0,
            dropped: 0,
            busy: 0,
        };
        for _ in 0..connections {
            simulation.open();
        }
        simulation
    }

    fn open(&mut self) {
        let key = self.connections.len();
        let watch = self.reaper.watch(key, !(key as u64)).expect("it is open");
        self.connections.push(Connection {
            last: Instant::now(),
            guards: Vec::new(),
            watch: Some(watch),
            is_reaped: false,
        });
    }

    fn pick(&mut self) -> usize {
        self.random.index(self.connections.len())
    }

    /// Makes random operations at this instant, and compares the answers of touches with the
    /// oracle.
    fn act(&mut self, load: &Load) {
        let now = Instant::now();
        for _ in 0..load.touches {
            let key = self.pick();
            // Some threads read the clock a little earlier, and some much earlier.
            let at = if self.random.chance(8) {
                let earlier = ms(self.random.below(200));
                now.checked_sub(earlier).unwrap_or(now)
            } else {
                now
            };
            let connection = &mut self.connections[key];
            if let Some(watch) = &connection.watch {
                assert_eq!(watch.touch_at(at), !connection.is_reaped, "{key}");
                self.touched += 1;
                connection.last = connection.last.max(at);
            }
        }
        for _ in 0..load.guards {
            let key = self.pick();
            let release = self.random.chance(2);
            let connection = &mut self.connections[key];
            if release {
                self.release(key);
            } else if let Some(watch) = &connection.watch {
                let guard = watch.busy();
                assert_eq!(guard.is_effective(), !connection.is_reaped, "{key}");
                if !connection.is_reaped {
                    self.busy += usize::from(connection.guards.is_empty());
                    connection.guards.push(guard);
                }
            }
        }
        for _ in 0..load.drops {
            let key = self.pick();
            let connection = &mut self.connections[key];
            if let Some(watch) = connection.watch.take() {
                assert_eq!(watch.is_watched(), !connection.is_reaped, "{key}");
                self.dropped += usize::from(!connection.is_reaped);
                self.busy -= usize::from(!connection.guards.is_empty());
                // The guards may be held for longer.
            }
        }
        for _ in 0..load.opens {
            self.open();
        }
    }

    fn release(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        if connection.guards.pop().is_some() {
            connection.last = Instant::now();
            if connection.guards.is_empty() && connection.watch.is_some() {
                self.busy -= 1;
            }
        }
    }

    /// Lets time pass until `until`. Receives each watch that expires meanwhile at once, and checks
    /// it.
    async fn pass_until(&mut self, until: Instant) {
        loop {
            tokio::select! {
                biased;
                expired = self.expirations.recv() => self.judge(&expired.expect("it is open")),
                () = time::sleep_until(until) => break,
            }
        }
    }

    fn judge(&mut self, expired: &Expired<usize, u64>) {
        let key = expired.key;
        let connection = &mut self.connections[key];
        assert_eq!(expired.value, !(key as u64), "{key} has another's value");
        assert!(!connection.is_reaped, "{key} is reaped twice");
        assert!(connection.watch.is_some(), "{key} was dropped");
        assert!(connection.guards.is_empty(), "{key} is busy");
        let idle = connection.last.elapsed();
        assert!(idle >= self.idle, "{key} is reaped early, after {idle:?}");
        let latest = self.idle + 2 * T + self.lag;
        assert!(idle <= latest, "{key} is late: {idle:?}");
        assert!(expired.deadline >= connection.last + self.idle);
        assert!(expired.deadline <= Instant::now());
        connection.is_reaped = true;
        self.reaped += 1;
    }

    fn receive_all(&mut self) {
        while let Ok(expired) = self.expirations.try_recv() {
            self.judge(&expired);
        }
    }

    /// Asserts that the right connections are watched, and that none of them has been idle for too
    /// long.
    fn check(&self) {
        let mut watched = 0;
        let mut busy = 0;
        for (key, connection) in self.connections.iter().enumerate() {
            if connection.is_reaped || connection.watch.is_none() {
                continue;
            }
            watched += 1;
            if connection.guards.is_empty() {
                let idle = connection.last.elapsed();
                assert!(idle <= self.idle + 2 * T, "{key} is forgotten: {idle:?}");
            } else {
                busy += 1;
            }
        }
        assert_eq!(self.reaper.len(), watched);
        assert_eq!(self.busy, busy);
        let ended = self.reaped + self.dropped;
        assert_eq!(ended + watched, self.connections.len());
    }

    /// Ends all activity: all connections are reaped, the busy ones when their guards are released.
    async fn finish(mut self) {
        self.pass_until(Instant::now() + self.idle + 3 * T).await;
        self.check();
        assert_eq!(self.reaper.len(), self.busy);
        for key in 0..self.connections.len() {
            while !self.connections[key].guards.is_empty() {
                self.release(key);
            }
        }
        self.pass_until(Instant::now() + self.idle + 3 * T).await;
        self.check();
        assert_eq!((self.reaper.len(), self.busy), (0, 0));
        assert_eq!(self.reaped + self.dropped, self.connections.len());
        let all_say_so = (self.connections.iter())
            .filter_map(|connection| connection.watch.as_ref())
            .all(|watch| !watch.touch());
        assert!(all_say_so);

        self.wheel.settle().await;
        let metrics = self.wheel.metrics();
        assert_eq!(metrics.keyed_set, self.connections.len() as u64);
        assert_eq!(metrics.keyed_fired, self.reaped as u64);
        assert_eq!(metrics.keyed_removed, self.dropped as u64);
        assert_eq!((metrics.keyed_pending, metrics.keyed_moved), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn reaps_each_of_100_000_touched_guarded_connections_in_time() {
    let mut simulation = Simulation::new(0x1D1E, ms(1_000), 100_000);
    let load = Load {
        touches: 3_000,
        guards: 300,
        drops: 40,
        opens: 200,
    };
    let mut reaped_under_load = 0;
    for step in 0..250 {
        let gap = ms(simulation.random.below(25));
        simulation.pass_until(Instant::now() + gap).await;
        simulation.act(&load);
        if step % 25 == 0 {
            simulation.check();
            reaped_under_load = simulation.reaped;
        }
    }
    // Some connections were reaped, and some were not.
    assert!(reaped_under_load > 10_000, "{reaped_under_load}");
    assert!(simulation.reaper.len() > 50_000);
    assert!(simulation.busy > 1_000);
    simulation.finish().await;
}

/// Systems that move a timer at each touch send a command each; here not even the number of
/// reschedulings follows the touches.
#[tokio::test(start_paused = true)]
async fn reaps_in_time_when_one_in_a_hundred_is_touched_each_tick() {
    const CONNECTIONS: usize = 100_000;
    // Each is touched five times in its idle period, more or less.
    let mut simulation = Simulation::new(0x1000, T * 500, CONNECTIONS);
    simulation.wheel.settle().await;
    let start = Instant::now();
    let before = simulation.wheel.metrics();
    let load = Load {
        touches: CONNECTIONS / 100,
        guards: 0,
        drops: 0,
        opens: 0,
    };
    let ticks = 1_250;
    for tick in 1..=ticks {
        simulation.pass_until(start + T * tick).await;
        simulation.act(&load);
    }
    simulation.check();
    let after = simulation.wheel.metrics();

    assert!(simulation.touched > 1_200_000);
    let commands = after.commands - before.commands;
    let looks = after.rescheduled - before.rescheduled;
    assert!(
        commands <= looks,
        "a touch sent a message: {commands}, {looks}"
    );
    let periods = f64::from(ticks) / 500.0;
    #[allow(clippy::cast_precision_loss)] // it is a ratio
    let looks = after.rescheduled as f64 / (CONNECTIONS as f64 * periods);
    println!("{looks} looks per connection and idle period");
    assert!(looks < 1.25, "{looks}");
    simulation.finish().await;
}

/// Watches are dropped and others take their indices while the actor is behind, by more or less
/// than the idle duration.
#[tokio::test(start_paused = true)]
async fn reaps_each_of_many_that_come_and_go_while_the_actor_lags() {
    let mut simulation = Simulation::new(0x1A6, ms(100), 2_000);
    simulation.lag = ms(400);
    let load = Load {
        touches: 300,
        guards: 30,
        drops: 200,
        opens: 200,
    };
    for _ in 0..400 {
        simulation.wheel.settle().await;
        simulation.receive_all();
        let gap = ms(simulation.random.below(200) * simulation.random.below(3));
        time::advance(gap).await;
        // The clock's jump may have given the actor a turn.
        simulation.receive_all();
        simulation.act(&load);
        simulation.wheel.settle().await;
        simulation.receive_all();
        simulation.check();
    }
    simulation.lag = Duration::ZERO;
    simulation.finish().await;
}

/// The actor is late, and the reader too: watches that are touched before the receipt are not
/// reaped, however often that happens, and the others are, once. Touches of received watches return
/// `false`, and the watches stay reaped.
#[tokio::test(start_paused = true)]
async fn keeps_watches_touched_before_a_late_reader_receives() {
    const CONNECTIONS: usize = 10_000;
    let mut simulation = Simulation::new(0x510, ms(100), CONNECTIONS);
    simulation.wheel.settle().await;
    for round in 0..30 {
        // Everything is due. In some rounds the wheel has reached it.
        time::advance(ms(150)).await;
        if round % 3 == 0 {
            simulation.wheel.settle().await;
        }
        let now = Instant::now();
        let silent = simulation.pick();
        for (key, connection) in simulation.connections.iter_mut().enumerate() {
            let watch = connection.watch.as_ref().expect("it is not dropped");
            if key == silent {
                continue;
            }
            assert_eq!(watch.touch(), !connection.is_reaped, "{key}");
            connection.last = now;
        }
        simulation.wheel.settle().await;
        let connection = &mut simulation.connections[silent];
        let watch = connection.watch.as_ref().expect("it is not dropped");
        assert_eq!(watch.is_watched(), !connection.is_reaped);
        let mut received = Vec::new();
        while let Ok(expired) = simulation.expirations.try_recv() {
            received.push(expired.key);
        }
        let expected: &[usize] = if connection.is_reaped { &[] } else { &[silent] };
        connection.is_reaped = true;
        assert_eq!(received, expected, "round {round}");
        assert!(!watch.touch(), "{silent} was received");
    }
}
