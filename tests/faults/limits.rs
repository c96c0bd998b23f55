//! Memory and its limit, many small puts, rows that age.

use std::collections::BTreeMap;
use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion_memwal::ErrorKind;

use super::settle;
use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{
    create, open, read_everywhere, rows, schema, session, shared_uri, sql,
};

/// The store is blocked for objects whose path contains `blocked`, then goes on.
async fn bounds_memory_and_recovers(blocked: &str) {
    let (uri, faults) = (shared_uri(), Faults::new());
    let limit = 64 * 1024;
    let options = [
        ("durable_write", "false"),
        ("flush_interval", "on_demand"),
        ("max_memtable_size", "16KiB"),
        ("max_unflushed_size", "64KiB"),
        ("backpressure_timeout", "5m"),
    ];
    let table = create(&uri, &faults, &options).await;
    faults.add(Request::Put, blocked, Fault::Block, usize::MAX);
    let mut taken = 0;
    let refused = loop {
        let many: Vec<_> = (0..20).map(|row| (taken * 20 + row, taken)).collect();
        match table.put(vec![rows(&many)]).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        let held = table.stats().unflushed_bytes;
        assert!(held <= limit, "{held} bytes are held, the limit is {limit}");
    };
    assert_eq!(refused.kind(), ErrorKind::Backpressure, "{refused}");
    assert!(refused.is_retryable());
    assert!(taken > 10, "only {taken} puts were taken");
    assert!(table.stats().backpressure_waits > 0);

    // Lance writes on threads of its own, which the paused clock would overtake.
    tokio::time::resume();
    faults.heal();
    for more in taken..taken + 50 {
        let many: Vec<_> = (0..20).map(|row| (more * 20 + row, more)).collect();
        table.put(vec![rows(&many)]).await.unwrap();
    }
    assert_eq!(
        read_everywhere(&table).await.len() as i64,
        (taken + 50) * 20
    );
}

#[tokio::test(start_paused = true)]
async fn f01_f08_a_blocked_log_bounds_memory_and_the_table_recovers() {
    bounds_memory_and_recovers("/wal/").await;
}

#[tokio::test(start_paused = true)]
async fn f01_f08_a_blocked_flush_bounds_memory_and_the_table_recovers() {
    bounds_memory_and_recovers("_gen_").await;
}

#[tokio::test]
async fn a_hundred_thousand_single_row_puts_are_counted_right_at_every_moment() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [("durable_write", "false"), ("max_memtable_rows", "40000")];
    let table = create(&uri, &faults, &options).await;
    let session = session(&table);
    let limit = table.options().max_unflushed_size as u64;
    for id in 0..100_000 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
        if id % 4_999 == 0 {
            let counted = sql(&session, "SELECT count(*) FROM t").await.unwrap();
            let counted = counted[0].column(0).as_primitive::<Int64Type>().value(0);
            assert_eq!(counted, id + 1);
            assert!(table.stats().unflushed_bytes <= limit);
        }
    }
    let total = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t";
    let total = sql(&session, total).await.unwrap();
    let values: Vec<i64> = (0..4)
        .map(|column| total[0].column(column).as_primitive::<Int64Type>().value(0))
        .collect();
    assert_eq!(values, [100_000, 100_000, 0, 99_999]);
}

#[tokio::test(start_paused = true)]
async fn f04_a_trickle_of_rows_reaches_a_generation_by_age_and_by_entries() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[("max_memtable_age", "10m")]).await;
    table.put(vec![rows(&[(1, 1)])]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(601)).await;
    while table.stats().flushes < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read_everywhere(&table).await, BTreeMap::from([(1, 1)]));

    let (uri, faults) = (shared_uri(), Faults::new());
    let options = [
        ("flush_interval", "on_demand"),
        ("max_memtable_wal_entries", "8"),
    ];
    let table = create(&uri, &faults, &options).await;
    for id in 0..30 {
        table.put(vec![rows(&[(id, id)])]).await.unwrap();
    }
    settle().await;
    drop(table);
    let table = open(&uri, &faults).await;
    assert!(
        table.stats().active_rows <= 9,
        "{}",
        table.stats().active_rows
    );
    assert_eq!(read_everywhere(&table).await.len(), 30);
}

#[tokio::test]
async fn a_change_that_no_memtable_can_hold_is_refused_whole() {
    let (uri, faults) = (shared_uri(), Faults::new());
    let table = create(&uri, &faults, &[("max_memtable_rows", "10")]).await;
    let many: Vec<_> = (0..11).map(|id| (id, id)).collect();
    let error = table.put(vec![rows(&many)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("max_memtable_rows"), "{error}");
    assert_eq!(read_everywhere(&table).await, BTreeMap::new());
    assert_eq!(faults.count(Request::Put, "wal"), 0);
}

#[tokio::test]
async fn two_writers_of_one_process_claim_one_after_the_other() {
    let (uri, faults) = (shared_uri(), Faults::new());
    drop(create(&uri, &faults, &[]).await);
    let opens = (0..4).map(|_| {
        let (uri, faults) = (uri.clone(), Faults::new());
        tokio::spawn(async move {
            super::support::tables::builder(&uri, &faults, &[])
                .open()
                .await
        })
    });
    let mut open_tables = Vec::new();
    for opened in opens.collect::<Vec<_>>() {
        match opened.await.unwrap() {
            Ok(table) => open_tables.push(table),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
        }
    }
    let mut alive = 0;
    for table in &open_tables {
        match table.put(vec![rows(&[(1, 1)])]).await {
            Ok(()) => alive += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
        }
    }
    assert_eq!(alive, 1, "exactly one writer lives");
    assert_eq!(schema().fields().len(), 3);
}
