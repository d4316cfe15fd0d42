//! A nightly job in Berlin, through the two nights of a year in which clocks change.
//!
//! Days pass at once: the store and the runtime have a clock that is moved on while nothing is to
//! do. The job is due at 2:30. In March clocks go from 2:00 to 3:00 on the 29th, and in October
//! from 3:00 back to 2:00 on the 25th. Exits with code 1 unless the job ran once in each night.
//!
//! ```sh
//! cargo run -p tickwheel-durable --features cron --example nightly
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tickwheel::TimerWheel;
use tickwheel_durable::{Memory, builder};

const NIGHTS: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tokio::time::pause();
    // Midnight in Berlin, two nights before clocks change.
    for midnight in ["2026-03-27T00:00+01:00", "2026-10-23T00:00+02:00"] {
        match nights(midnight).await {
            Ok(true) => println!(),
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("nightly: {error}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Runs the job for some nights. Returns whether it ran once in each.
async fn nights(midnight: &str) -> Result<bool, Box<dyn Error>> {
    let midnight: Timestamp = midnight.parse()?;
    let store = Memory::new();
    store.set_clock(midnight.into());
    let wheel = TimerWheel::new();
    let (timers, mut claims) = builder::<String, String>("jobs")
        .poll(Duration::from_secs(60))
        .window(Duration::from_secs(3_600))
        .start(&wheel, store)
        .await?;
    // A program may do this each time it starts: a job that is overdue then stays so.
    let report = "sales".to_owned();
    timers
        .set_cron("report", &report, "30 2 * * *", "Europe/Berlin")
        .await?;

    let mut days = Vec::new();
    for _ in 0..NIGHTS {
        let claim = claims.recv().await.ok_or("the stream has ended")?;
        let time = in_berlin(claim.deadline)?;
        println!(
            "{}: report on {}",
            time.strftime("%a %d %b %H:%M %Z"),
            claim.value
        );
        days.push(time.day());
        claim.ack().await?;
    }
    Ok(days.windows(2).all(|days| days[1] == days[0] + 1))
}

fn in_berlin(time: SystemTime) -> Result<jiff::Zoned, Box<dyn Error>> {
    let since = time.duration_since(UNIX_EPOCH)?;
    let timestamp = Timestamp::from_second(since.as_secs().try_into()?)?;
    Ok(timestamp.in_tz("Europe/Berlin")?)
}
