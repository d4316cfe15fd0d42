//! Tests of the count of stale nodes, one call at a time.

use super::*;

#[test]
fn one_caller_tells_the_actor_above_the_limit() {
    let stale = StaleNodes::default();
    assert!(!stale.add(STALE_KEPT));
    assert!(stale.add(2));
    assert!(!stale.add(1), "it was told");
    assert!(stale.is_over(STALE_KEPT));
    assert_eq!(stale.begin_sweep(), STALE_KEPT + 3);
    assert!(!stale.add(1), "a sweep has begun");
    stale.count_again(STALE_KEPT);
    assert!(stale.is_over(STALE_KEPT), "entries were locked");
}

#[test]
fn each_first_node_tells_an_actor_that_allows_none() {
    let stale = StaleNodes::default();
    assert!(!stale.is_over(0));
    assert!(stale.add(1));
    assert!(!stale.add(1), "it was told");
    stale.begin_sweep();
    assert!(!stale.is_over(0));
    assert!(stale.add(2));
}

#[test]
fn half_of_many_nodes_may_be_stale() {
    let stale = StaleNodes::default();
    let nodes = 10 * STALE_KEPT;
    assert!(!stale.is_over(limit(nodes, nodes)));
    assert!(!stale.add(nodes / 2));
    assert!(!stale.is_over(limit(nodes, nodes)));
    assert!(stale.is_over(limit(nodes - 2, nodes)), "others have fired");
    assert!(!stale.is_over(limit(nodes, nodes)));
    assert!(stale.add(1));
}

#[test]
fn limit_grows_with_the_places_that_a_sweep_looks_at() {
    assert_eq!(limit(0, 0), STALE_KEPT);
    assert_eq!(limit(1, 16 * STALE_KEPT), STALE_KEPT);
    assert_eq!(limit(1, 1_000 * STALE_KEPT), 1_000 * STALE_KEPT / 16);
}
