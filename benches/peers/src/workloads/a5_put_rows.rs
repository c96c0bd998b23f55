//! a5: puts of one row, not durable.

use std::time::Instant;

use datafusion::arrow::array::RecordBatch;

use crate::harness::{Latencies, ROUNDS, Result, Unit, check, compare, rate};
use crate::lance_peer::{LancePeer, keyed, not_durable};
use crate::{ours, rows};

/// Below the 8,000 batches at which Lance freezes a memtable.
const PUTS: usize = 7_000;

pub async fn run() -> Result<()> {
    let batches = rows::sequence(0, 1, PUTS, 1);
    let for_lance = keyed(&batches)?;
    let mut own = Latencies::default();
    let mut peer = Latencies::default();
    compare(
        "a5 put 1 row, key, not durable",
        Unit::PerSecond("puts"),
        ROUNDS,
        async |_| of_ours(&batches, &mut own).await,
        async |_| of_lance(&for_lance, &mut peer).await,
    )
    .await?;
    println!(
        "  p50 and p99 in us: ours {:.1} and {:.1}, Lance {:.1} and {:.1}",
        own.micros(0.5),
        own.micros(0.99),
        peer.micros(0.5),
        peer.micros(0.99)
    );
    Ok(())
}

async fn of_ours(batches: &[RecordBatch], latencies: &mut Latencies) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let uri = folder.path().join("t").display().to_string();
    let table = ours::create(&uri, true, &[ours::NOT_DURABLE], None).await?;
    let began = Instant::now();
    for batch in batches {
        let put = Instant::now();
        table.put(vec![batch.clone()]).await?;
        latencies.add(put.elapsed());
    }
    let rate = rate(PUTS, began);
    let session = ours::session(&table)?;
    let found = session.sql("SELECT n FROM t").await?.collect().await?;
    check(
        "ours",
        rows::count_and_sum(&found),
        rows::count_and_sum(batches),
    )?;
    table.close().await?;
    Ok(rate)
}

async fn of_lance(batches: &[RecordBatch], latencies: &mut Latencies) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let uri = folder.path().join("t").display().to_string();
    let peer = LancePeer::create(&uri, not_durable(), None).await?;
    let began = Instant::now();
    for batch in batches {
        let put = Instant::now();
        peer.writer.put(vec![batch.clone()]).await?;
        latencies.add(put.elapsed());
    }
    peer.wait_readable(PUTS).await?;
    let rate = rate(PUTS, began);
    let found = peer.scan(&["n"]).await?;
    check(
        "Lance",
        rows::count_and_sum(&found),
        rows::count_and_sum(batches),
    )?;
    peer.writer.abort().await?;
    Ok(rate)
}
