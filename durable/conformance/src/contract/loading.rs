//! Loading, and what becomes of it.

use std::collections::BTreeSet;
use std::time::Duration;

use tickwheel_durable::store::{
    Action, Continuity, Due, Fire, LeftRow, Load, Settle, Settled, Settlement, State, Store, Terms,
    WriteOutcome,
};
use tokio::time::sleep;

use super::{Case, FAR, HOUR, NOW, armed, versions, waits_again, write};
use crate::world::{Stores, World};

/// A fire takes due rows of an instance that has ended in the order of their deadlines, whoever had
/// loaded them, and in whichever order they were set.
pub async fn fires_rows_of_an_ended_instance_in_order<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (ended, other) = (case.instance().await, case.instance().await);
    let now = case.load(other, HOUR, 0).await.now;
    let due = |seconds| Due::At(now.before(Duration::from_secs(seconds)));
    // Of two that are due at once the first that was set comes first.
    let of_ended = [(b'd', 40), (b'a', 90), (b'c', 60), (b'e', 40)];
    for (key, seconds) in of_ended {
        case.set(&char::from(key).to_string(), due(seconds)).await;
    }
    assert_eq!(case.load(ended, HOUR, 100).await.rows.len(), 4);
    for (key, seconds) in [("f", 20), ("b", 70)] {
        case.set(key, due(seconds)).await;
    }
    case.unload(ended).await;
    let mut fired = Vec::new();
    for limit in [2, 3, 100] {
        let report = case.fire_besides(Vec::new(), limit).await;
        assert!(report.fired.len() <= limit);
        let keys = report.fired.into_iter().map(|fired| fired.key);
        fired.extend(keys);
    }
    let keys = ["a", "b", "c", "d", "e", "f"].map(|key| key.as_bytes().to_vec());
    assert_eq!(fired, keys);
}

/// D11: a load tells whether the store has the last one under its id. If it does not, the store has
/// returned to an earlier state.
pub async fn d11_tells_a_load_that_the_store_does_not_know<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let id = case.instance().await;
    let load = async |id, alive, last| {
        let mut request = Load::new(id, HOUR, 10, alive);
        request.last = last;
        // Where the clock is paused, no two loads come at the same time either.
        sleep(Duration::from_millis(1)).await;
        let loaded = case.load_as(request).await;
        (loaded.receipt, loaded.continuity)
    };
    let (first, continuity) = load(id, HOUR, None).await;
    assert_eq!(continuity, Continuity::Kept, "there is none before it");
    let (second, continuity) = load(id, HOUR, Some(first)).await;
    assert_eq!(continuity, Continuity::Kept);
    assert!(second.alive_until > first.alive_until);
    // What others do changes nothing.
    let other = case.instance().await;
    let (others, _) = load(other, HOUR, None).await;
    let (third, continuity) = load(id, HOUR, Some(second)).await;
    assert_eq!(continuity, Continuity::Kept);
    // The answer to a load was lost.
    let (fourth, continuity) = load(id, HOUR, Some(second)).await;
    assert_eq!(
        continuity,
        Continuity::Unknown,
        "{second:?}, then {third:?}"
    );
    // A load that the store does not have.
    let mut lost = fourth;
    lost.alive_until = lost.alive_until.after(HOUR);
    let (fifth, continuity) = load(id, HOUR, Some(lost)).await;
    assert_eq!(
        continuity,
        Continuity::Broken,
        "{lost:?}, and not {fourth:?}"
    );
    // An id that it does not have.
    let unknown = case.instance().await;
    let (_, continuity) = load(unknown, HOUR, Some(others)).await;
    assert_eq!(
        continuity,
        Continuity::Broken,
        "{others:?} is of another id"
    );
    // A break in the connection.
    let mut before = fifth;
    before.connection += 1;
    let (_, continuity) = load(id, HOUR, Some(before)).await;
    assert_ne!(continuity, Continuity::Kept, "{before:?}, then {fifth:?}");
    // An id that has ended, and that another load has seen to.
    let short = case.instance().await;
    let (last, _) = load(short, world.units(2), None).await;
    world.wait(4).await;
    load(other, HOUR, None).await;
    let (_, continuity) = load(short, HOUR, Some(last)).await;
    assert_ne!(continuity, Continuity::Broken, "{last:?} has ended");
}

/// A load tells how many due rows other living instances wanted and were not given, until another
/// instance leaves them some.
pub async fn tells_what_others_lack<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, other) = (case.instance().await, case.instance().await);
    let load = async |instance, wanted, alive| {
        let mut request = Load::new(instance, HOUR, 10, alive);
        request.wanted = wanted;
        case.load_as(request).await.others_lack
    };
    let row = case.set("due", NOW).await.version;
    case.set("later", Due::In(Duration::from_secs(60))).await;
    // One of both is due.
    assert_eq!(load(first, 4, HOUR).await, 0);
    assert_eq!(load(other, 1, HOUR).await, 3);
    assert_eq!(load(first, 4, HOUR).await, 1, "it does not count itself");
    assert_eq!(load(other, 0, HOUR).await, 4);
    // All together.
    let third = case.instance().await;
    assert_eq!(load(third, 2, HOUR).await, 4);
    assert_eq!(load(other, 0, HOUR).await, 6);
    // In another namespace nothing is lacking, and what is left there is left there.
    let apart = Case::open(&world.part("apart")).await;
    let there = apart.instance().await;
    let left = apart.set("left", NOW).await.version;
    assert_eq!(apart.load(there, HOUR, 10).await.others_lack, 0);
    let unmarked = apart.store.unmark(&apart.space, there, vec![left]);
    assert_eq!(unmarked.await, Ok(Vec::new()), "no row is locked");
    assert_eq!(load(other, 0, HOUR).await, 6);
    // An instance leaves only its own rows to others.
    let unmark = async |instance, version| {
        let unmarked = case.store.unmark(&case.space, instance, vec![version]);
        assert_eq!(unmarked.await, Ok(Vec::new()), "no row is locked");
    };
    unmark(other, row).await;
    assert_eq!(load(other, 0, HOUR).await, 6);
    unmark(first, row).await;
    assert_eq!(load(other, 0, HOUR).await, 0);
    // It says so again if it still does. An id that has ended lacks nothing.
    assert_eq!(load(third, 2, HOUR).await, 0);
    assert_eq!(load(other, 0, HOUR).await, 2);
    case.unload(third).await;
    assert_eq!(load(other, 0, HOUR).await, 0);
    assert_eq!(load(first, 2, world.units(5)).await, 0);
    assert_eq!(load(other, 0, HOUR).await, 2);
    world.wait(6).await;
    assert_eq!(load(other, 0, HOUR).await, 0);
}

/// Rows that several instances have died with, and those that no instance had loaded, are loaded
/// piece by piece, each once.
pub async fn loads_what_the_dead_left_piece_by_piece<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let mut rows = BTreeSet::new();
    for number in 0..10 {
        rows.insert(case.set(&number.to_string(), FAR).await.version);
    }
    for _ in 0..3 {
        let dead = case.instance().await;
        assert_eq!(case.load(dead, HOUR, 3).await.rows.len(), 3);
        case.unload(dead).await;
    }
    for _ in 0..2 {
        let dead = case.instance().await;
        assert_eq!(case.load(dead, HOUR, 4).await.rows.len(), 4);
        let request = Load::new(dead, HOUR, 0, world.units(1));
        assert!(case.load_as(request).await.more);
    }
    world.wait(2).await;
    let instance = case.instance().await;
    let mut loaded = Vec::new();
    for limit in [3, 3, 3, 3] {
        loaded.extend(versions(&case.load(instance, HOUR, limit).await));
    }
    assert_eq!(loaded.len(), rows.len(), "each row once");
    assert_eq!(loaded.into_iter().collect::<BTreeSet<_>>(), rows);
    // Ids that have ended go with what they had loaded.
    let members = case.store.inspect().instances(&case.space);
    let members = members.await.expect("it lists").into_iter();
    assert_eq!(
        members.map(|member| member.id).collect::<Vec<_>>(),
        [instance]
    );
}

/// A load that has no room for all that others have left says so.
pub async fn says_that_others_have_left_more<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (leaves, loads) = (case.instance().await, case.instance().await);
    for key in ["a", "b"] {
        let token = case.fired(key).await;
        let left = LeftRow::new(leaves, Duration::ZERO, HOUR);
        waits_again(case.settle(token, Settlement::Leave(left)).await);
    }
    for limit in [0, 1] {
        assert!(case.load(loads, HOUR, limit).await.more, "limit {limit}");
    }
    assert!(!case.load(loads, HOUR, 1).await.more);
}

/// A fire of unloaded rows takes those that have been due longest, in flight or waiting.
pub async fn fires_what_has_been_due_longest<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let row = case.set("lapsed", NOW).await.version;
    let lease = Some(Duration::from_millis(1));
    case.fire_as(Fire::new(vec![row], lease, Terms::NONE)).await;
    world.wait(1).await;
    case.set("waits", NOW).await;
    for key in ["lapsed", "waits"] {
        let fired = case.fire_besides(Vec::new(), 1).await.fired;
        assert_eq!(fired.len(), 1);
        assert_eq!(fired[0].key, key.as_bytes());
    }
}

/// A row that an instance cannot decode is loaded by others at once, and by itself after a time. It
/// waits under its key, or stays in flight beside a newer one, and the firing does not count.
pub async fn leaves_rows_to_those_that_can_decode_them<T: Stores>(world: &World<T>) {
    let case = Case::open(world).await;
    let (first, other) = (case.instance().await, case.instance().await);
    let load = async |instance| versions(&case.load(instance, HOUR, 10).await);
    let alive = world.units(20);
    let leave = async |token, by, pause| {
        let settlement = Settlement::Leave(LeftRow::new(by, pause, alive));
        let settle = Settle::new(token, settlement).with_error("no number");
        let terms = Terms::new(HOUR, Some(by));
        case.settle_as(vec![settle], terms).await[0]
    };
    load(first).await;
    let token = case.fired("a").await;
    let row = waits_again(leave(token, first, Duration::ZERO).await);
    assert!(!row.loaded && row.version > token);
    assert_eq!(load(first).await, []);
    assert_eq!(load(other).await, [row.version]);

    // Beside a newer one; and the other one leaves it, too.
    let leave_beside = async |token, by, pause| {
        assert_eq!(leave(token, by, pause).await, Settled::Done);
        let left = case.list(State::InFlight).await.remove(0);
        assert!(left.version > token);
        assert_eq!((left.loaded_by, left.claimed_by), (Some(by.left()), None));
        assert_eq!(leave(token, by, pause).await, Settled::Lost);
        left.version
    };
    let token = case.fire(vec![row.version]).await.fired[0].token;
    let newer = case.set("a", FAR).await.version;
    let left = leave_beside(token, other, Duration::ZERO).await;
    assert_eq!(load(other).await, [newer]);
    assert_eq!(load(first).await, [left]);
    let fired = case.fire(vec![left]).await;
    let token = fired.fired[0].token;
    assert_eq!(fired.fired[0].attempt, 1);

    // Not before the pause is over, and not by itself before its time is.
    let token = leave_beside(token, first, world.units(4)).await;
    assert_eq!(load(other).await, []);
    world.wait(5).await;
    assert_eq!(load(first).await, []);
    world.wait(20).await;
    assert_eq!(load(first).await, [token]);

    // What it leaves later does not keep it from that for longer.
    let mut left = Vec::new();
    for key in ["d", "e"] {
        let token = case.fired(key).await;
        let row = waits_again(leave(token, first, Duration::ZERO).await);
        if left.is_empty() {
            // The former mark has run out, and the new one counts from now on.
            assert_eq!(load(first).await, []);
        }
        left.push(row.version);
        world.wait(12).await;
    }
    assert_eq!(load(first).await, left);

    // A left row is moved and removed like any other, and then it is not left any more.
    for key in ["b", "c"] {
        let token = case.fired(key).await;
        waits_again(leave(token, first, Duration::ZERO).await);
    }
    let change = vec![write("b", Action::move_to(NOW)), write("c", Action::Remove)];
    let changed = case.write(change).await;
    assert!(matches!(changed[1], WriteOutcome::Removed { .. }));
    assert_eq!(load(first).await, [armed(&changed[0]).version]);

    // Among those that no instance has loaded they come when they are due.
    let token = case.fired("f").await;
    let row = waits_again(leave(token, first, Duration::ZERO).await);
    world.wait(1).await;
    case.set("g", NOW).await;
    let loaded = case.load(other, HOUR, 1).await;
    assert_eq!((versions(&loaded), loaded.more), (vec![row.version], true));

    // A mark that has run out counts from the beginning, though no load has met it since.
    world.wait(25).await;
    let token = case.fired("h").await;
    let row = waits_again(leave(token, first, Duration::ZERO).await);
    assert!(!load(first).await.contains(&row.version));
}
