//! A process that inserts durably is killed at random moments; nothing that it
//! acknowledged may be missing, doubled or different afterwards.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion_memwal::MemWalTable;
use support::tables::{rows, schema, session, sql};

const CHILD_URI: &str = "MEMWAL_CRASH_URI";
const CHILD_FIRST_ID: &str = "MEMWAL_CRASH_FIRST_ID";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// The process that is killed. As a test of its own it does nothing.
#[test]
fn inserting_process() {
    let (Ok(uri), Ok(first)) = (std::env::var(CHILD_URI), std::env::var(CHILD_FIRST_ID)) else {
        return;
    };
    let first: i64 = first.parse().unwrap();
    runtime().block_on(async {
        let table = MemWalTable::builder(&uri)
            .with_option("flush_interval", "on_demand")
            .with_option("max_memtable_rows", "24")
            .open()
            .await
            .unwrap();
        let session = session(&table);
        for id in first.. {
            // Two rows a statement: both or neither must survive.
            let statement = format!(
                "INSERT INTO t VALUES ({}, {id}, 'a'), ({}, {id}, 'b')",
                2 * id,
                2 * id + 1
            );
            sql(&session, &statement).await.unwrap();
            println!("ack {id}");
        }
    });
}

#[test]
fn kill_loses_and_doubles_nothing() {
    let kills: u64 = std::env::var("CRASH_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let seed: u64 = std::env::var("CRASH_SEED").map_or(7, |seed| seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    runtime().block_on(async {
        let table = MemWalTable::create(&uri, schema(), &["id"]).await.unwrap();
        table.put(vec![rows(&[(0, 0), (1, 0)])]).await.unwrap();
    });

    let mut acknowledged = BTreeSet::from([0_i64]);
    let mut random = seed;
    for kill in 0..kills {
        // A small linear congruential generator is random enough to choose a moment.
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let acks_before_kill = (random >> 33) % 60;
        let first = acknowledged.last().unwrap() + 1;
        for id in run_and_kill(&uri, first, acks_before_kill) {
            acknowledged.insert(id);
        }
        let found = runtime().block_on(read_back(&uri));
        let missing: Vec<_> = acknowledged.difference(&found).collect();
        assert!(
            missing.is_empty(),
            "kill {kill}: lost {missing:?} (CRASH_SEED={seed})"
        );
        let extra: Vec<i64> = found.difference(&acknowledged).copied().collect();
        assert!(
            extra.len() <= 1,
            "kill {kill}: {extra:?} were never acknowledged"
        );
        // The statement in flight may have been taken; it is part of the table from now on.
        acknowledged.extend(extra);
    }
}

/// Runs the inserting process until it has acknowledged `acks` statements, kills it, and
/// returns everything that it acknowledged.
fn run_and_kill(uri: &str, first: i64, acks: u64) -> Vec<i64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "inserting_process", "--nocapture"])
        .env(CHILD_URI, uri)
        .env(CHILD_FIRST_ID, first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ack = |line: &str| -> Option<i64> { line.strip_prefix("ack ")?.parse().ok() };
    let mut found = Vec::new();
    while (found.len() as u64) < acks {
        let line = lines.next().expect("the process ended by itself").unwrap();
        found.extend(ack(&line));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    found.extend(lines.map_while(Result::ok).filter_map(|line| ack(&line)));
    found
}

/// The statements whose rows are there, after a check that each is there whole, once, and
/// the same through scan, count and key lookup.
async fn read_back(uri: &str) -> BTreeSet<i64> {
    let table = MemWalTable::open(uri).await.unwrap();
    let session = session(&table);
    let batches = sql(&session, "SELECT id, n FROM t ORDER BY id")
        .await
        .unwrap();
    let mut ids = Vec::new();
    for batch in &batches {
        let (id, n) = (
            batch.column(0).as_primitive::<Int64Type>(),
            batch.column(1).as_primitive::<Int64Type>(),
        );
        for row in 0..batch.num_rows() {
            assert_eq!(id.value(row) / 2, n.value(row));
            ids.push(id.value(row));
        }
    }
    let expected: Vec<i64> = (0..ids.len() as i64).collect();
    assert_eq!(
        ids, expected,
        "a row is missing, doubled, or half a statement is there"
    );
    assert_eq!(ids.len() % 2, 0, "half a statement is there");

    let count = sql(&session, "SELECT count(*) FROM t").await.unwrap();
    let count = count[0].column(0).as_primitive::<Int64Type>().value(0);
    assert_eq!(count, ids.len() as i64);
    for &id in ids.iter().rev().take(20) {
        let found = sql(&session, &format!("SELECT n FROM t WHERE id = {id}"))
            .await
            .unwrap();
        let rows: usize = found.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, 1, "key lookup of {id}");
        assert!(
            table.get(&[id.into()]).await.unwrap().is_some(),
            "get of {id}"
        );
    }
    // Dropped without close, as a crash would leave it.
    ids.iter().map(|id| id / 2).collect()
}
