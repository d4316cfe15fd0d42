//! Reminders to customers, of which some fail: attempts, backoff, and what an operator does about
//! dead timers.
//!
//! ```sh
//! cargo run -p tickwheel-durable --example retries
//! ```

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Admin, Backoff, Claim, Memory, Retry, builder};
use tokio::time::sleep;

/// The mail server, which is down at first.
#[derive(Default)]
struct Mail {
    is_up: AtomicBool,
}

impl Mail {
    async fn send(&self, customer: &str) -> Result<(), Retry> {
        sleep(Duration::from_millis(5)).await;
        match customer {
            // It will never succeed: further attempts are pointless.
            "nobody" => Err(Retry::never("there is no such customer")),
            // The server says when to come back.
            "busy" => Err(Retry::after(Duration::from_millis(300)).because("mailbox is busy")),
            // Any error becomes a retry with `?`.
            _ if !self.is_up.load(Ordering::Relaxed) => {
                Err(std::io::Error::other("connection refused"))?
            }
            _ => Ok(()),
        }
    }
}

fn print(what: &str, key: &str, rest: impl Display) {
    println!("{what:>10}  {key:<10}  {rest}");
}

async fn print_dead(admin: &Admin<String, String>) -> Result<(), Box<dyn Error>> {
    for entry in admin.dead(None, 100).await? {
        let error = entry.error.unwrap_or_default();
        print(
            "dead",
            &entry.key?,
            format!("after {} attempts: {error}", entry.attempt),
        );
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let wheel = TimerWheel::new();
    let backoff = Backoff::exponential()
        .first(Duration::from_millis(100))
        .longest(Duration::from_secs(60));
    // `Sqlite::open("reminders.db")?` keeps them in a file.
    let (timers, mut claims) = builder::<String, String>("reminders")
        .max_attempts(3)
        .backoff(backoff)
        .keep_dead(Duration::from_secs(30 * 86_400))
        .start(&wheel, Memory::new())
        .await?;

    for (key, customer) in [
        ("order 1", "alice"),
        ("order 2", "nobody"),
        ("order 3", "busy"),
    ] {
        let delay = Duration::from_millis(50);
        timers.set_timer(key, &customer.to_owned(), delay).await?;
    }

    let mail = Arc::new(Mail::default());
    let operator = async {
        let admin = timers.admin();
        while timers.counts().await?.dead < 3 {
            sleep(Duration::from_millis(50)).await;
        }
        print_dead(&admin).await?;

        println!("\nThe mail server is repaired. Order 2 is hopeless, the others are retried.\n");
        mail.is_up.store(true, Ordering::Relaxed);
        admin.discard_dead_key("order 2").await?;
        print("retried", "all", admin.retry_all_dead().await?);
        while timers.counts().await?.dead < 1 {
            sleep(Duration::from_millis(50)).await;
        }
        print_dead(&admin).await?;
        timers.shutdown().await;
        Ok::<_, Box<dyn Error>>(())
    };
    let handlers = claims.dispatch(16, |claim: Claim<String, String>| {
        let mail = Arc::clone(&mail);
        async move {
            let sent = mail.send(&claim.value).await;
            let outcome = if sent.is_ok() { "sent" } else { "failed" };
            print(outcome, &claim.key, format!("attempt {}", claim.attempt));
            sent
        }
    });
    let ((), operated) = tokio::join!(handlers, operator);
    operated
}
