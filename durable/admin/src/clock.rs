//! How times are told apart from now.

use std::time::Duration;

use tickwheel_durable::store::StoreTime;

/// How far a time is from now: `in 3 days`, `5.2 s ago`, `never`.
pub(crate) fn from_now(time: StoreTime, now: StoreTime) -> String {
    if time.is_never() {
        return "never".to_owned();
    }
    if time >= now {
        return format!("in {}", span(time.since(now)));
    }
    format!("{} ago", span(now.since(time)))
}

/// For how long something goes on that ends then: `for 5.2 s`, `no`.
pub(crate) fn goes_on(until: StoreTime, now: StoreTime) -> String {
    if until < now {
        return "no".to_owned();
    }
    format!("for {}", span(until.since(now)))
}

/// A duration with its largest unit, and the next one where that matters.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let pair = |large: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{large} {unit}"),
        rest => format!("{large} {unit} {rest} {smaller}"),
    };
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_two_units_at_most() {
        let spans =
            [0, 7, 59, 60, 3_599, 3_600, 90_061].map(|secs| span(Duration::from_secs(secs)));
        let expected = [
            "0 ms",
            "7.0 s",
            "59 s",
            "1 min",
            "59 min 59 s",
            "1 h",
            "1 d 1 h",
        ];
        assert_eq!(spans, expected);
        assert_eq!(span(Duration::from_millis(250)), "250 ms");
        let now = StoreTime::from_micros(5_000_000);
        assert_eq!(
            from_now(StoreTime::from_micros(3_800_000), now),
            "1.2 s ago"
        );
        assert_eq!(from_now(StoreTime::NEVER, now), "never");
        assert_eq!(goes_on(StoreTime::from_micros(8_000_000), now), "for 3.0 s");
        assert_eq!(goes_on(StoreTime::from_micros(4_999_999), now), "no");
    }

    #[test]
    fn time_is_as_far_before_now_as_after_it() {
        const DAY: u64 = 86_400;
        let now = StoreTime::from_micros(1_000_000_000_000);
        for (seconds, text) in [
            (90, "1 min 30 s"),
            (3_630, "1 h"),
            (5_400, "1 h 30 min"),
            (2 * DAY + 5 * 3_600 + 59 * 60, "2 d 5 h"),
        ] {
            let apart = Duration::from_secs(seconds);
            assert_eq!(from_now(now.after(apart), now), format!("in {text}"));
            assert_eq!(from_now(now.before(apart), now), format!("{text} ago"));
        }
        assert_eq!(from_now(now, now), "in 0 ms");
    }
}
