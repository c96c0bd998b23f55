//! a1: puts of 1,000 rows, not durable, the key being the only index.

use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;

use crate::harness::{ROUNDS, Result, Unit, check, compare};
use crate::lance_peer::{LancePeer, keyed, not_durable};
use crate::{ours, rows};

/// Below the 100,000 rows at which both sides freeze a memtable.
const BATCHES: usize = 90;
const BATCH_ROWS: usize = 1_000;
/// Fresh tables per round, since one fills in a few milliseconds.
const TABLES: usize = 5;

pub async fn run() -> Result<()> {
    let batches = rows::sequence(0, 1, BATCHES * BATCH_ROWS, BATCH_ROWS);
    let for_lance = keyed(&batches)?;
    compare(
        "a1 put 1,000 rows, key, not durable",
        Unit::PerSecond("rows"),
        ROUNDS,
        async |_| of_ours(&batches).await,
        async |_| of_lance(&for_lance).await,
    )
    .await
}

fn rows_per_second(spent: Duration) -> f64 {
    (TABLES * BATCHES * BATCH_ROWS) as f64 / spent.as_secs_f64()
}

async fn of_ours(batches: &[RecordBatch]) -> Result<f64> {
    let mut spent = Duration::ZERO;
    for _ in 0..TABLES {
        let folder = tempfile::tempdir()?;
        let uri = folder.path().join("t").display().to_string();
        let table = ours::create(&uri, true, &[ours::NOT_DURABLE], None).await?;
        let began = Instant::now();
        ours::put_all(&table, batches).await?;
        spent += began.elapsed();
        let session = ours::session(&table)?;
        let found = session.sql("SELECT n FROM t").await?.collect().await?;
        check(
            "ours",
            rows::count_and_sum(&found),
            rows::count_and_sum(batches),
        )?;
        table.close().await?;
    }
    Ok(rows_per_second(spent))
}

async fn of_lance(batches: &[RecordBatch]) -> Result<f64> {
    let mut spent = Duration::ZERO;
    for _ in 0..TABLES {
        let folder = tempfile::tempdir()?;
        let uri = folder.path().join("t").display().to_string();
        let peer = LancePeer::create(&uri, not_durable(), None).await?;
        let began = Instant::now();
        peer.put_all(batches).await?;
        peer.wait_readable(batches.len()).await?;
        spent += began.elapsed();
        let found = peer.scan(&["n"]).await?;
        check(
            "Lance",
            rows::count_and_sum(&found),
            rows::count_and_sum(batches),
        )?;
        peer.writer.abort().await?;
    }
    Ok(rows_per_second(spent))
}
