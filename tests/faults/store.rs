//! What the object store may do to a writer: lose answers, claim what is not so, fail for a
//! while, let two writers in.

use std::collections::BTreeMap;
use std::future::Future;

use datafusion_memwal::ErrorKind;

use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{
    builder, create, keys, open, read_everywhere, rows, schema, shared_uri,
};
use super::{is_waiting, settle};

const ON_DEMAND: (&str, &str) = ("flush_interval", "on_demand");

#[tokio::test(start_paused = true)]
async fn b06_a_lost_answer_is_recognised_and_makes_no_second_entry() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    faults.add(Request::Put, "/wal/", Fault::LoseAnswer, 1);
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();
    assert_eq!(table.stats().next_wal_position, 3);
    drop(table);
    let table = open(&uri, &faults).await;
    assert_eq!(table.stats().active_rows, 2);
    assert_eq!(read_everywhere(&table).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn b07_a_slot_that_is_claimed_to_exist_and_does_not_is_tried_again() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    faults.add(Request::Put, "/wal/", Fault::ClaimExists, 2);
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    drop(table);
    let table = open(&uri, &faults).await;
    assert_eq!(read_everywhere(&table).await, BTreeMap::from([(1, 1)]));
}

#[tokio::test]
async fn b01_a09_the_predecessor_is_fenced_and_every_waiter_is_told() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let first = create(&uri, &faults, &[ON_DEMAND]).await;
    first.put(vec![rows(&[(1, 1)])]).await.unwrap();
    let second = open(&uri, &faults).await;
    let waiters = (2..10).map(|id| {
        let first = first.clone();
        tokio::spawn(async move { first.put(vec![rows(&[(id, id)])]).await })
    });
    for waiter in waiters.collect::<Vec<_>>() {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
    }
    second.put(vec![rows(&[(50, 50)])]).await.unwrap();
    assert_eq!(
        read_everywhere(&second).await,
        BTreeMap::from([(1, 1), (50, 50)])
    );
}

#[tokio::test]
async fn b09_a_slow_put_of_the_predecessor_is_replayed_or_not_acknowledged() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let first = create(&uri, &faults, &[ON_DEMAND]).await;
    first.put(vec![rows(&[(1, 1)])]).await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Block, 1);
    let put = first.put_no_wait(vec![rows(&[(2, 2)])]).await.unwrap();
    settle().await;
    let second = open(&uri, &Faults::new()).await;
    faults.heal();
    let acknowledged = put.await.is_ok();
    let found = read_everywhere(&second).await;
    assert!(found.contains_key(&1));
    assert!(
        !acknowledged || found.contains_key(&2),
        "acknowledged and lost"
    );
}

#[tokio::test(start_paused = true)]
async fn a04_a_flush_that_fails_is_repeated_before_the_next_is_published() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND, ("max_memtable_rows", "2")]).await;
    faults.add(Request::Put, "_gen_1", Fault::Fail, 2);
    for id in 0..6 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
    }
    table.flush().await.unwrap();
    assert_eq!(table.stats().frozen_memtables, 0);
    drop(table);
    let table = open(&uri, &faults).await;
    assert_eq!(table.stats().generations, 3);
    assert_eq!(read_everywhere(&table).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_publish_whose_answer_is_lost_is_not_repeated() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = builder(&uri, &faults, &[ON_DEMAND])
        .create(schema(), &[])
        .await
        .unwrap();
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    // The commit takes effect, and neither its answer nor any look at it comes through.
    faults.add(Request::Put, ".binpb", Fault::LoseAnswer, 1);
    faults.add(Request::Get, ".binpb", Fault::Fail, 15);
    table.flush().await.unwrap();
    faults.heal();
    for table in [table, open(&uri, &faults).await] {
        if !table.is_open() {
            continue;
        }
        let tiers = table.tiers().await.unwrap();
        let visible: u64 = tiers.iter().filter_map(|tier| tier.visible_rows).sum();
        assert_eq!(visible, 1, "{tiers:?}");
        let generations = tiers.iter().filter(|tier| tier.tier == "generation");
        assert_eq!(generations.count(), 1, "{tiers:?}");
    }
}

#[tokio::test]
async fn two_closes_at_once_both_wait_for_the_log() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("flush_interval", "1h")];
    let table = create(&uri, &faults, &options).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    settle().await;
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    let closes = [table.clone(), table.clone()]
        .map(|table| tokio::spawn(async move { table.close().await }));
    settle().await;
    assert!(closes.iter().all(|close| !close.is_finished()));
    faults.heal();
    for close in closes {
        close.await.unwrap().unwrap();
    }
    assert_eq!(read_everywhere(&open(&uri, &faults).await).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a06_close_reports_what_could_not_be_written() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("flush_interval", "1h")];
    let table = create(&uri, &faults, &options).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    settle().await;
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Fail, usize::MAX);
    assert_eq!(table.close().await.unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(table.put(vec![rows(&[(3, 3)])]).await.is_err());

    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    faults.add(Request::Put, "_gen_", Fault::Fail, usize::MAX);
    assert!(table.flush().await.is_err());
    assert!(
        table.close().await.is_err(),
        "the sealed memtable was not flushed"
    );
    faults.heal();
    assert_eq!(read_everywhere(&open(&uri, &faults).await).await.len(), 1);
}

#[tokio::test]
async fn a18_a_put_that_is_dropped_anywhere_is_there_before_and_after_or_neither() {
    for polls in 0..12 {
        let (uri, faults) = (shared_uri(), Faults::new());
        let table = create(&uri, &faults, &[ON_DEMAND]).await;
        {
            let mut put = Box::pin(table.put(vec![rows(&[(1, 1)])]));
            for _ in 0..polls {
                let ready = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(put.as_mut().poll(context).is_ready())
                });
                if ready.await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // A later put is durable only when everything before it is.
        table.put(vec![rows(&[(2, 2)])]).await.unwrap();
        let now = read_everywhere(&table).await;
        drop(table);
        let later = read_everywhere(&open(&uri, &faults).await).await;
        assert_eq!(now, later, "dropped after {polls} polls");
        assert!(now.contains_key(&2));
    }
}

#[tokio::test]
async fn a_writer_that_is_dropped_tells_who_waits_for_it() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    let put = table.put_no_wait(vec![rows(&[(1, 1)])]).await.unwrap();
    let mut acknowledged = put.into_future();
    assert!(is_waiting(&mut acknowledged).await);
    drop(table);
    assert_eq!(acknowledged.await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn c04_c23_a_tombstone_hides_its_row_in_every_tier() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table
        .put(vec![rows(&[(1, 1), (2, 2), (3, 3)])])
        .await
        .unwrap();
    faults.add(Request::Put, "_gen_", Fault::Block, usize::MAX);
    let flush = tokio::spawn({
        let table = table.clone();
        async move { table.flush().await }
    });
    settle().await;
    table.delete(vec![keys(&[2])]).await.unwrap();
    table.put(vec![rows(&[(3, 33)])]).await.unwrap();
    let expected = BTreeMap::from([(1, 1), (3, 33)]);
    assert_eq!(table.stats().frozen_memtables, 1);
    assert_eq!(read_everywhere(&table).await, expected);
    assert!(table.get(&[2_i64.into()]).await.unwrap().is_none());
    faults.heal();
    flush.await.unwrap().unwrap();
    assert_eq!(read_everywhere(&table).await, expected);
    table.flush().await.unwrap();
    assert_eq!(read_everywhere(&table).await, expected);
    drop(table);
    let table = open(&uri, &faults).await;
    assert_eq!(read_everywhere(&table).await, expected);
    assert!(table.get(&[2_i64.into()]).await.unwrap().is_none());
}

#[tokio::test]
async fn d18_empty_puts_write_nothing() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table.put(vec![]).await.unwrap();
    table.put(vec![rows(&[])]).await.unwrap();
    table.delete(vec![keys(&[])]).await.unwrap();
    assert_eq!(table.flush().await.unwrap(), None);
    assert_eq!(faults.count(Request::Put, "wal"), 0);
    table
        .put(vec![rows(&[]), rows(&[(1, 1)]), rows(&[])])
        .await
        .unwrap();
    table.delete(vec![keys(&[1])]).await.unwrap();
    assert!(table.flush().await.unwrap().is_some());
    assert_eq!(read_everywhere(&table).await, BTreeMap::new());
    table.close().await.unwrap();
}
