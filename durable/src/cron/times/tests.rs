use super::*;

/// The first times after an instant of UTC, without what they have in common with it.
fn times<const N: usize>(expression: &str, zone: &str, after: &str) -> [String; N] {
    let cron = Cron::new(expression, zone).expect("it is valid");
    let start: Timestamp = format!("{after}:00Z").parse().expect("it is a time");
    let mut time = StoreTime::from_micros(start.as_microsecond());
    [(); N].map(|()| {
        time = cron.after(time).expect("it occurs again");
        time.to_string().trim_end_matches(":00.000000Z").to_owned()
    })
}

#[test]
fn fixed_time_is_due_once_in_each_night() {
    for (zone, forward, back) in [
        (
            "Europe/Berlin",
            ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
            ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"],
        ),
        (
            "America/New_York",
            ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"],
            ["2026-10-31T06:30", "2026-11-01T07:30", "2026-11-02T07:30"],
        ),
    ] {
        for nights in [forward, back] {
            let before = format!("{}T02:00", &nights[0][..10]);
            let before = before.replace(
                "T02",
                if zone == "Europe/Berlin" {
                    "T00"
                } else {
                    "T06"
                },
            );
            assert_eq!(times("30 2 * * *", zone, &before), nights, "{zone}");
        }
    }
    let twice = ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"];
    assert_eq!(
        times("30 1 * * *", "America/New_York", "2026-10-31T05:00"),
        twice
    );
}

/// There clocks go half an hour, from 2:00 to 2:30 and from 2:00 to 1:30.
#[test]
fn half_an_hour_is_left_out_or_comes_twice_on_lord_howe() {
    let zone = "Australia/Lord_Howe";
    let forward = ["2026-10-02T15:45", "2026-10-03T15:30", "2026-10-04T15:15"];
    assert_eq!(times("15 2 * * *", zone, "2026-10-02T15:00"), forward);
    let back = ["2026-04-03T14:45", "2026-04-04T14:45", "2026-04-05T15:15"];
    assert_eq!(times("45 1 * * *", zone, "2026-04-03T14:00"), back);
    let quarters = [
        "2026-04-04T14:45",
        "2026-04-04T15:00",
        "2026-04-04T15:15",
        "2026-04-04T15:30",
    ];
    assert_eq!(times("*/15 * * * *", zone, "2026-04-04T14:30"), quarters);
}

/// There the gap is the last hour of a Saturday.
#[test]
fn fixed_time_in_a_gap_before_midnight_needs_the_next_day_too() {
    let zone = "America/Nuuk";
    let due = |expression| times(expression, zone, "2026-03-28T02:00");
    assert_eq!(due("30 23 * * *"), ["2026-03-29T01:00", "2026-03-30T00:30"]);
    assert_eq!(
        due("30 23 * * SAT"),
        ["2026-04-05T00:30", "2026-04-12T00:30"]
    );
}

#[test]
fn fixed_time_that_comes_twice_is_not_due_the_second_time() {
    // Clocks show 2:10, and have shown 2:30 before.
    let next = times("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10");
    assert_eq!(next, ["2026-10-26T01:30"]);
}

#[test]
fn each_quarter_of_an_hour_goes_on_when_clocks_change() {
    for (zone, nights) in [
        ("Europe/Berlin", ["2026-03-29T00:30", "2026-10-24T23:30"]),
        ("America/New_York", ["2026-03-08T06:30", "2026-11-01T04:30"]),
        (
            "Australia/Lord_Howe",
            ["2026-10-03T14:30", "2026-04-04T14:00"],
        ),
    ] {
        for night in nights {
            let start: Timestamp = format!("{night}:00Z").parse().expect("it is a time");
            let quarters: [String; 12] = times("*/15 * * * *", zone, night);
            for (number, quarter) in (1..).zip(quarters) {
                let expected = start.as_second() + 900 * number;
                let quarter: Timestamp = format!("{quarter}:00Z").parse().expect("it is a time");
                assert_eq!(quarter.as_second(), expected, "{zone}");
            }
        }
    }
}

#[test]
fn several_fixed_times_are_left_out_in_a_gap() {
    let night = ["2026-03-29T00:30", "2026-03-29T23:30", "2026-03-30T00:30"];
    assert_eq!(
        times("30 1,2 * * *", "Europe/Berlin", "2026-03-28T23:00"),
        night
    );
}

#[test]
fn days_of_month_and_week_add_up() {
    let either = [
        "2026-11-06T00:00",
        "2026-11-13T00:00",
        "2026-11-20T00:00",
        "2026-11-27T00:00",
    ];
    assert_eq!(times("0 0 13 * FRI", "UTC", "2026-11-01T00:00"), either);
    let either = ["2026-12-11T00:00", "2026-12-13T00:00", "2026-12-18T00:00"];
    assert_eq!(times("0 0 13 * FRI", "UTC", "2026-12-05T00:00"), either);
    let both = ["2026-11-13T00:00", "2027-08-13T00:00"];
    assert_eq!(times("0 0 13 * +FRI", "UTC", "2026-11-01T00:00"), both);
}

#[test]
fn last_of_february_and_the_29th() {
    let leap = ["2028-02-29T12:00", "2032-02-29T12:00"];
    assert_eq!(times("0 12 29 2 *", "UTC", "2026-11-01T00:00"), leap);
    // 2100 is no leap year.
    assert_eq!(
        times("0 12 29 2 *", "UTC", "2096-03-01T00:00"),
        ["2104-02-29T12:00"]
    );
    let last = ["2027-02-28T12:00", "2028-02-29T12:00"];
    assert_eq!(times("0 12 L 2 *", "UTC", "2026-11-01T00:00"), last);
}

#[test]
fn seconds_come_first() {
    let cron = Cron::new("30 0 9 * * MON-FRI", "UTC").expect("it is valid");
    let saturday: Timestamp = "2026-11-21T00:00:00.5Z".parse().expect("it is a time");
    let next = cron.after(StoreTime::from_micros(saturday.as_microsecond()));
    let next = next.expect("it occurs").to_string();
    assert_eq!(next, "2026-11-23T09:00:30.000000Z");
}

#[test]
fn time_is_after_any_part_of_the_second_before() {
    let cron = Cron::new("* * * * * *", "UTC").expect("it is valid");
    for (micros, next) in [(0, 1), (1, 1), (999_999, 1), (1_000_000, 2)] {
        let after = cron.after(StoreTime::from_micros(micros));
        assert_eq!(after, Some(StoreTime::from_micros(next * 1_000_000)));
    }
}

#[test]
fn refuses_what_never_occurs_and_what_is_invalid() {
    let refused = |expression: &str, zone: &str| {
        let refused = Cron::first(
            expression,
            zone,
            StoreTime::from_micros(1_795_000_000_000_000),
        );
        refused.expect_err("it is refused")
    };
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 29 2 +SUN#1"] {
        let expression = never.to_owned();
        assert_eq!(refused(never, "UTC"), CronError::NeverOccurs { expression });
    }
    for invalid in [
        "",
        "* * * *",
        "61 * * * *",
        "0 0 0 1 1 * 2026",
        "*/90 * * * *",
        "0 */24 * * *",
        "0 0 */31 * *",
        "0 0 1,,3 * *",
        "0,,0 0 0 * * *",
        "0 0 1, * *",
        "* * * * * x",
    ] {
        let error = refused(invalid, "UTC");
        assert!(matches!(error, CronError::Expression { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("{invalid:?} is no cron expression: "))
        );
    }
    for invalid in [
        "",
        "Mars/Olympus",
        "UTC ",
        "+02:00",
        "../zone",
        "Factory",
        "factory",
    ] {
        let zone = invalid.to_owned();
        assert_eq!(refused("* * * * *", invalid), CronError::Zone { zone });
    }
    let long = format!("0{} * * * *", ",0".repeat(400));
    let too_long = CronError::TooLong {
        len: long.len() + 4,
        max: MAX_SCHEDULE_BYTES,
    };
    assert_eq!(refused(&long, "UTC"), too_long);
}

#[test]
fn text_of_a_schedule_can_be_read_again() {
    let now = StoreTime::from_micros(1_795_000_000_000_000);
    let (text, first) =
        Cron::first("  0  9\t* *\nMON ", "Europe/Berlin", now).expect("it is valid");
    assert_eq!(text, "0 9 * * MON Europe/Berlin");
    let read = Cron::read(&text).expect("it is read");
    assert_eq!(read.after(now), Some(first));
}

/// Regression: a weekday beside each second day of the month was one day more, and in Vixie cron it
/// is one day less.
#[test]
fn day_that_begins_with_a_star_does_not_stand_alone() {
    let odd_mondays = ["2026-11-09T00:00", "2026-11-23T00:00", "2026-12-07T00:00"];
    let mondays = |expression| times(expression, "UTC", "2026-11-05T00:00");
    assert_eq!(mondays("0 0 */2 * MON"), odd_mondays);
    assert_eq!(mondays("0 0 0 */2 * 1"), odd_mondays);
    let days = ["2026-11-07T00:00", "2026-11-09T00:00", "2026-11-23T00:00"];
    assert_eq!(mondays("0 0 7,9,23 * */1"), days);
    let either = ["2026-11-05T00:00", "2026-11-09T00:00"];
    assert_eq!(times("0 0 5 * 1", "UTC", "2026-11-04T00:00"), either);
}

/// Regression: a search went on to the year 5000, for seconds, on the thread of the runtime.
#[test]
fn search_ends_after_some_steps() {
    let now = StoreTime::from_micros(1_795_000_000_000_000);
    for (expression, zone) in [
        // Clocks leave out these times each year.
        ("* * 2 8-14 3 +SUN", "America/New_York"),
        ("* 30-59 2 * 3 SUN#L", "Europe/Berlin"),
        ("30 23 25-30 3 +SAT", "America/Nuuk"),
    ] {
        let cron = Cron::new(expression, zone).expect("it is valid");
        assert_eq!(cron.search(now), (None, MAX_STEPS), "{expression}");
    }
    // The end of a gap is looked for second by second.
    let cron = Cron::new("0 2 8-14 3 +SUN", "America/New_York").expect("it is valid");
    let (found, steps) = cron.search(now);
    assert!(found.is_some() && steps < 3_610, "{steps}");
    // It ends by its years.
    let cron = Cron::new("0-1 2 8-14 3 +SUN", "America/New_York").expect("it is valid");
    let (found, steps) = cron.search(now);
    assert!(found.is_none() && steps < 1_000, "{steps}");
}

/// The rarest days come again within 40 years.
#[test]
fn rare_days_are_found() {
    let sundays = ["2032-02-29T00:00", "2060-02-29T00:00", "2088-02-29T00:00"];
    let rare = times("0 0 29 2 +SUN", "UTC", "2026-11-05T00:00");
    assert_eq!(rare, sundays);
    let after = times("0 0 29 2 +SUN", "UTC", "2088-03-01T00:00");
    assert_eq!(after, ["2128-02-29T00:00"]);
}

/// Bounds change no time: these come at most some years apart.
#[test]
fn bounded_searches_find_what_the_parser_does() {
    for zone in [
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "America/Nuuk",
        "Africa/Casablanca",
    ] {
        for expression in [
            "*/7 1-3 * * *",
            "30 2 * * *",
            "15 23 * 3,10 SAT#L",
            "0 12 29 2 *",
        ] {
            let cron = Cron::new(expression, zone).expect("it is valid");
            let mut time = StoreTime::from_micros(1_774_500_000_000_000);
            for _ in 0..500 {
                if time.as_micros() > 6_000_000_000_000_000 {
                    // In the year 2160.
                    break;
                }
                let start = Timestamp::from_microsecond(time.as_micros()).expect("it is one");
                let start = start.to_zoned(cron.zone.clone());
                let next = cron.expression.find_next_occurrence(&start, false);
                let next = next.expect("it occurs again").timestamp();
                time = cron.after(time).expect("it occurs again");
                assert_eq!(
                    time.as_micros(),
                    next.as_microsecond(),
                    "{expression} {zone}"
                );
            }
        }
    }
}
