//! Progress while the demonstration runs: a bar on a terminal, lines elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Debug)]
pub(crate) enum Progress {
    Bar { bar: ProgressBar, began: Instant },
    Lines { began: Instant, next: Duration },
}

/// How long after one line the next is written.
const LINE_EVERY: Duration = Duration::from_secs(1);

impl Progress {
    /// Something that takes about `expected`.
    pub(crate) fn new(expected: Duration) -> Self {
        let began = Instant::now();
        if !io::stdout().is_terminal() {
            let next = Duration::ZERO;
            return Progress::Lines { began, next };
        }
        let length = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stdout());
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}]{msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress::Bar { bar, began }
    }

    /// To be called often.
    pub(crate) fn show(&mut self, state: impl FnOnce() -> String) {
        let line = |elapsed: Duration| format!("{:>5.1} s: {}", elapsed.as_secs_f64(), state());
        match self {
            Progress::Bar { bar, began } => {
                let elapsed = began.elapsed();
                let position = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
                bar.set_position(position.min(bar.length().unwrap_or(0)));
                bar.set_message(line(elapsed));
            }
            Progress::Lines { began, next } => {
                let elapsed = began.elapsed();
                if elapsed >= *next {
                    *next += LINE_EVERY;
                    say!("{}", line(elapsed));
                }
            }
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(self) {
        if let Progress::Bar { bar, .. } = self {
            bar.finish_and_clear();
        }
    }
}
