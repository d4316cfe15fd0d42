//! `max_keyed`, and the count behind it.

use tickwheel::{KeyedTimers, SetTimerError, TimerWheel};

use crate::support::{advance, assert_balanced, jump, ms, received};

fn wheel(max_keyed: usize) -> TimerWheel {
    TimerWheel::builder().max_keyed(max_keyed).start().unwrap()
}

/// How many new keys, from `first` on, find room.
fn room(timers: &KeyedTimers<u64, ()>, first: u64) -> u64 {
    let accepted = |&key: &u64| timers.set_timer(key, (), ms(1)).is_ok();
    (first..first + 1000).take_while(accepted).count() as u64
}

#[tokio::test(start_paused = true)]
async fn returns_a_new_key_over_the_limit() {
    let wheel = wheel(2);
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("a", 1, ms(10)).unwrap();
    timers.set_timer("b", 2, ms(20)).unwrap();
    let refused = timers.set_timer("c", 3, ms(5)).unwrap_err();
    assert_eq!(refused, SetTimerError::Full("c", 3));
    assert!(refused.is_full() && !refused.is_closed());
    assert_eq!(refused.into_inner(), ("c", 3));
    let refused = timers.set_interval("c", 3, ms(5)).unwrap_err();
    assert_eq!(refused, SetTimerError::Full("c", 3));
    assert_eq!(timers.len(), 2);

    timers
        .set_timer("a", 4, ms(30))
        .expect("replacing takes no room");
    timers
        .set_interval("b", 5, ms(100))
        .expect("replacing takes no room");
    timers.move_timer("a", ms(1)).unwrap();
    assert!(timers.set_timer("c", 3, ms(5)).is_err());

    advance(&wheel, ms(1)).await;
    let refused = timers.set_timer("c", 6, ms(5));
    assert!(refused.is_err(), "what is due and unreceived counts");
    assert_eq!(received(&mut stream), [("a", 4)]);
    timers.set_timer("c", 6, ms(5)).expect("one was received");
    assert!(timers.set_timer("d", 7, ms(5)).is_err());
    timers.remove_timer("c").unwrap();
    timers.set_timer("d", 7, ms(5)).expect("one was removed");
    advance(&wheel, ms(5)).await;
    timers.remove_timer("d").unwrap();
    timers
        .set_timer("e", 8, ms(5))
        .expect("one that was due was removed");
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn frees_its_share_of_the_limit_by_every_end() {
    let wheel = wheel(10);
    let (timers, mut stream) = wheel.keyed();
    for round in 0..20 {
        let first = round * 100;
        assert_eq!(room(&timers, first), 10, "round {round}");
        match round % 5 {
            0 => assert_eq!(timers.drain().unwrap().len(), 10),
            1 => (first..first + 10)
                .for_each(|key| assert_eq!(timers.remove_timer(&key), Ok(Some(())))),
            2 => {
                for key in first..first + 10 {
                    assert_eq!(timers.remove_timer(&key), Ok(Some(())));
                }
            }
            3 => {
                advance(&wheel, ms(1)).await;
                assert_eq!(received(&mut stream).len(), 10);
            }
            _ => {
                // On the tick itself some are removed and the others fire.
                wheel.settle().await;
                jump(ms(1));
                (first..first + 5)
                    .for_each(|key| assert_eq!(timers.remove_timer(&key), Ok(Some(()))));
                wheel.settle().await;
                received(&mut stream);
            }
        }
        assert_eq!(timers.len(), 0);
        assert_eq!(wheel.metrics().keyed_pending, 0);
    }
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn applies_the_limit_across_the_sets_of_a_wheel() {
    let wheel = wheel(3);
    let (a, a_stream) = wheel.keyed::<u64, ()>();
    let (b, mut b_stream) = wheel.keyed::<&str, String>();
    a.set_timer(1, (), ms(1)).unwrap();
    b.set_timer("x", "1".into(), ms(1)).unwrap();
    b.set_timer("y", "2".into(), ms(1)).unwrap();
    assert!(a.set_timer(2, (), ms(1)).is_err());
    b.remove_timer("x").unwrap();
    a.set_timer(2, (), ms(1)).unwrap();
    assert!(b.set_timer("x", "1".into(), ms(1)).is_err());
    drop(a_stream);
    assert_eq!(
        room_of_strings(&b),
        2,
        "a stream dropped gives the places of its set back"
    );
    let (c, c_stream) = wheel.keyed::<u64, ()>();
    assert_eq!(room(&c, 0), 0);
    advance(&wheel, ms(1)).await;
    assert_eq!(room(&c, 0), 0, "the others' timers are due and unreceived");
    assert_eq!(received(&mut b_stream).len(), 3);
    assert_eq!(room(&c, 0), 3, "the others' timers were received");
    drop((c, c_stream));
    let (d, _d_stream) = wheel.keyed::<u64, ()>();
    assert_eq!(room(&d, 0), 3, "so does a set dropped as a whole");
}

fn room_of_strings(timers: &KeyedTimers<&'static str, String>) -> usize {
    ["p", "q", "r", "s"]
        .iter()
        .filter(|key| timers.set_timer(key, String::new(), ms(1)).is_ok())
        .count()
}

#[tokio::test(start_paused = true)]
async fn counts_an_interval_once_however_often_it_fires() {
    let wheel = wheel(2);
    let (timers, mut stream) = wheel.keyed();
    timers.set_interval(0_u64, (), ms(1)).unwrap();
    for _ in 0..100 {
        advance(&wheel, ms(1)).await;
        assert_eq!(received(&mut stream).len(), 1);
    }
    assert_eq!(room(&timers, 1), 1);
    timers.remove_timer(&0).unwrap();
    assert_eq!(room(&timers, 10), 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_count_exact_over_refused_and_unknown_keys() {
    let wheel = wheel(1);
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, (), ms(5)).unwrap();
    for key in 2..100 {
        assert!(timers.set_timer(key, (), ms(0)).is_err());
        assert_eq!(timers.remove_timer(&key), Ok(None));
        assert_eq!(timers.move_timer(&key, ms(0)), Ok(false));
        assert_eq!(timers.set_timer(1, (), ms(5)), Ok(Some(())));
        assert_eq!(timers.remove_timer(&key), Ok(None));
    }
    assert_eq!(timers.len(), 1);
    timers.remove_timer(&1).unwrap();
    timers.remove_timer(&1).unwrap();
    assert_eq!(room(&timers, 7), 1, "removed twice, it gave one place back");
    advance(&wheel, ms(5)).await;
    assert_eq!(received(&mut stream), [(7, ())]);
    timers.remove_timer(&7).unwrap();
    assert_eq!(room(&timers, 8), 1);
    let m = wheel.metrics();
    assert_eq!((m.keyed_set, m.keyed_pending), (101, 1));
    assert_balanced(&wheel);
}
