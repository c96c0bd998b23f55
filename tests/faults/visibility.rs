//! The twelve ways to break the visibility model.

use std::collections::BTreeMap;
use std::time::Duration;

use datafusion_memwal::{ErrorKind, MemWalTable};

use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{
    create, open, read_everywhere, rows, schema, session, shared_uri, sql,
};
use super::{is_waiting, settle};

const ON_DEMAND: (&str, &str) = ("flush_interval", "on_demand");

async fn assert_dead(table: &MemWalTable, kind: ErrorKind) {
    assert_eq!(table.snapshot().unwrap_err().kind(), kind);
    assert_eq!(table.get(&[1_i64.into()]).await.unwrap_err().kind(), kind);
    let put = table.put(vec![rows(&[(9, 9)])]).await.unwrap_err();
    assert_eq!(put.kind(), kind);
    assert_eq!(table.flush().await.unwrap_err().kind(), kind);
    let query = sql(&session(table), "SELECT * FROM t").await.unwrap_err();
    assert_eq!(datafusion_memwal::Error::from(query).kind(), kind);
    assert!(table.stats().failure.is_some(), "statistics stay readable");
    assert!(!table.tiers().await.unwrap().is_empty());
}

#[tokio::test]
async fn fault_01_a_fenced_writer_serves_nothing() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let first = create(&uri, &faults, &[ON_DEMAND]).await;
    first.put(vec![rows(&[(1, 1)])]).await.unwrap();
    let second = open(&uri, &faults).await;
    let refused = first.put(vec![rows(&[(2, 2)])]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert_dead(&first, ErrorKind::Fenced).await;
    assert_eq!(read_everywhere(&second).await, BTreeMap::from([(1, 1)]));
}

#[tokio::test(start_paused = true)]
async fn fault_01_05_a_failed_append_publishes_nothing_and_ends_the_writer() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Fail, usize::MAX);
    let before = table.stats().durable_batch_count;
    let failed = table.put(vec![rows(&[(2, 2)])]).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Poisoned);
    assert_eq!(table.stats().durable_batch_count, before);
    assert_dead(&table, ErrorKind::Poisoned).await;
    faults.heal();
    assert_dead(&table, ErrorKind::Poisoned).await;
    let reopened = open(&uri, &faults).await;
    assert_eq!(read_everywhere(&reopened).await, BTreeMap::from([(1, 1)]));
}

#[tokio::test]
async fn fault_02_replayed_rows_are_not_new() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    for id in 0..3 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
    }
    drop(table);

    let table = open(&uri, &faults).await;
    let replayed = table.stats();
    assert_eq!(replayed.active_rows, 3);
    assert_eq!(replayed.durable_batch_count, replayed.active_batches);
    assert_eq!((replayed.unlogged_batches, replayed.unlogged_bytes), (0, 0));
    table.put(vec![rows(&[(3, 3), (4, 4)])]).await.unwrap();
    assert_eq!(table.stats().wal_appends, 1);
    drop(table);

    // Rows that the second life had appended again would now be there twice.
    let table = open(&uri, &faults).await;
    assert_eq!(table.stats().active_rows, 5);
    assert_eq!(read_everywhere(&table).await.len(), 5);
}

#[tokio::test]
async fn fault_03_a_put_is_not_acknowledged_by_the_memtable_before() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND, ("max_memtable_rows", "2")]).await;
    table.put(vec![rows(&[(1, 1), (2, 2)])]).await.unwrap();
    table.flush().await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    let put = table.put_no_wait(vec![rows(&[(3, 3)])]).await.unwrap();
    let mut acknowledged = put.into_future();
    assert!(is_waiting(&mut acknowledged).await);
    assert_eq!(read_everywhere(&table).await.len(), 2);
    faults.heal();
    acknowledged.await.unwrap();
    assert_eq!(read_everywhere(&table).await.len(), 3);
}

#[tokio::test]
async fn fault_04_the_first_batch_is_not_visible_before_it_is_durable() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    let put = table.put_no_wait(vec![rows(&[(1, 1)])]).await.unwrap();
    settle().await;
    assert_eq!(read_everywhere(&table).await, BTreeMap::new());
    assert!(table.get(&[1_i64.into()]).await.unwrap().is_none());
    faults.heal();
    put.await.unwrap();
    assert_eq!(read_everywhere(&table).await, BTreeMap::from([(1, 1)]));
}

#[tokio::test(start_paused = true)]
async fn fault_07_an_interval_groups_puts_and_idles_without_them() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[("flush_interval", "500ms")]).await;
    let before = faults.count(Request::Put, "wal");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        faults.count(Request::Put, "wal"),
        before,
        "no puts, no entries"
    );

    // Every put has all the time of this thread to be appended alone, and none of the clock.
    let mut puts = Vec::new();
    for id in 0..100 {
        puts.push(table.put_no_wait(vec![rows(&[(id, id)])]).await.unwrap());
        settle().await;
    }
    for put in puts {
        put.await.unwrap();
    }
    let entries = faults.count(Request::Put, "wal") - before;
    assert!(
        (1..=3).contains(&entries),
        "100 puts made {entries} entries"
    );
    assert_eq!(read_everywhere(&table).await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn an_idle_table_appends_its_first_put_at_once() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[("flush_interval", "1h")]).await;
    let began = tokio::time::Instant::now();
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    // The second waits for the interval, which the paused clock jumps over.
    table.put(vec![rows(&[(2, 2)])]).await.unwrap();
    assert!(
        began.elapsed() >= Duration::from_secs(3600),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn fault_08_the_old_memtable_is_appended_before_the_new_one() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND, ("durable_write", "false")]).await;
    faults.add(Request::Put, "/wal/", Fault::Block, 1);
    faults.add(Request::Put, "_gen_", Fault::Fail, usize::MAX);
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    settle().await; // The append of the first row is on its way, and stuck.
    table.put(vec![rows(&[(7, 1), (8, 1)])]).await.unwrap();
    let flush = tokio::spawn({
        let table = table.clone();
        async move { table.flush().await }
    });
    settle().await; // The memtable is sealed, its tail not appended.
    table.put(vec![rows(&[(7, 2)])]).await.unwrap();
    faults.open_gate();
    while table.stats().unlogged_batches > 0 {
        tokio::task::yield_now().await;
    }
    flush.abort();
    drop(table);
    faults.heal();
    // All of it comes from the log: no flush succeeded.
    let table = open(&uri, &faults).await;
    let expected = BTreeMap::from([(1, 1), (7, 2), (8, 1)]);
    assert_eq!(read_everywhere(&table).await, expected);
}

#[tokio::test]
async fn fault_10_replay_rotates_and_the_second_reopen_reads_the_tail() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [ON_DEMAND, ("max_memtable_rows", "4")];
    let table = create(&uri, &faults, &options).await;
    // No flush succeeds, so that the log outgrows the memtable three times.
    faults.add(Request::Put, "_gen_", Fault::Fail, usize::MAX);
    for id in 0..14 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
    }
    assert_eq!(table.stats().frozen_memtables, 3);
    drop(table);
    faults.heal();

    let before = faults.count(Request::Get, "wal");
    let table = open(&uri, &faults).await;
    let first_replay = faults.count(Request::Get, "wal") - before;
    let stats = table.stats();
    assert_eq!((stats.generations, stats.active_rows), (3, 2));
    assert_eq!(read_everywhere(&table).await.len(), 14);
    drop(table);

    let before = faults.count(Request::Get, "wal");
    let table = open(&uri, &faults).await;
    let second_replay = faults.count(Request::Get, "wal") - before;
    assert!(
        second_replay + 10 <= first_replay,
        "{second_replay} after {first_replay}"
    );
    assert_eq!(table.stats().active_rows, 2);
    assert_eq!(read_everywhere(&table).await.len(), 14);
}

#[tokio::test]
async fn fault_11_close_and_freeze_forget_nothing() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("flush_interval", "1h")];
    let table = create(&uri, &faults, &options).await;
    let many: Vec<(i64, i64)> = (0..5_000).map(|id| (id, id)).collect();
    // Above the size that the caller indexes itself, so that the index task owes it.
    let put = table.put_no_wait(vec![rows(&many)]).await.unwrap();
    table.flush().await.unwrap();
    put.await.unwrap();
    table.put(vec![rows(&[(5_000, 0)])]).await.unwrap();
    table.close().await.unwrap();
    table.close().await.unwrap();
    assert_eq!(table.snapshot().unwrap_err().kind(), ErrorKind::Closed);
    let table = open(&uri, &faults).await;
    assert_eq!(read_everywhere(&table).await.len(), 5_001);
}

#[tokio::test]
async fn fault_11_a_table_without_an_index_is_still_gated_on_the_log() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = super::support::tables::builder(&uri, &faults, &[ON_DEMAND])
        .create(schema(), &[])
        .await
        .unwrap();
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    faults.add(Request::Put, "/wal/", Fault::Block, usize::MAX);
    let put = table.put_no_wait(vec![rows(&[(2, 2)])]).await.unwrap();
    settle().await;
    let count = |rows: Vec<datafusion::arrow::array::RecordBatch>| {
        rows.iter().map(|batch| batch.num_rows()).sum::<usize>()
    };
    let query = sql(&session(&table), "SELECT * FROM t").await.unwrap();
    assert_eq!(count(query), 1);
    faults.heal();
    put.await.unwrap();
    let query = sql(&session(&table), "SELECT * FROM t").await.unwrap();
    assert_eq!(count(query), 2);
}

#[tokio::test]
async fn fault_12_a_small_put_is_indexed_by_its_caller() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[("durable_write", "false")]).await;
    // This runtime has one thread and nothing is awaited in between, so no task can help.
    let pending = table.put_no_wait(vec![rows(&[(1, 1)])]).await.unwrap();
    assert!(table.get(&[1_i64.into()]).await.unwrap().is_some());
    pending.await.unwrap();
}

#[tokio::test]
async fn c17_each_put_of_a_table_without_indexes_becomes_visible() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[ON_DEMAND]).await;
    for id in 1..=3 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
        assert_eq!(read_everywhere(&table).await.len(), id as usize);
    }
}
