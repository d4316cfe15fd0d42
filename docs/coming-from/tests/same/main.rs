//! Both sides of each page are run on the same script, and what can be observed is compared. What a
//! page says is different is a test too.

mod delay_queue;
mod hashed_wheels;
mod moka;
mod other_runtimes;
mod pages;
mod pingora_timeout;
mod sorted_map;
mod support;
mod tokio_cron_scheduler;
