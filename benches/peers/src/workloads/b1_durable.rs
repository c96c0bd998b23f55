//! b1: durable puts of one row by one caller who finds the table idle, a PUT taking 50 ms.

use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use object_store::ObjectStoreExt;

use crate::harness::{Latencies, Result, Unit, check, compare};
use crate::lance_peer::{LancePeer, durable, keyed};
use crate::store::{Weather, shared_uri};
use crate::{ours, rows};

const PUT_DELAY: Duration = Duration::from_millis(50);
const INTERVAL: Duration = Duration::from_millis(100);
/// Longer than the interval: the table is idle when a put comes.
const PAUSE: Duration = Duration::from_millis(120);
const PUTS: usize = 10;
const ROUNDS: usize = 7;

pub async fn run() -> Result<()> {
    let batches = rows::sequence(0, 1, PUTS * (ROUNDS + 1), 1);
    let for_lance = keyed(&batches)?;

    let weather = Weather::calm(1);
    let table = ours::create(&shared_uri(), true, &[], Some(weather.params())).await?;
    weather.set_delays(PUT_DELAY, Duration::ZERO);

    let lance_weather = Weather::calm(1);
    let peer = LancePeer::create(
        &shared_uri(),
        durable(INTERVAL),
        Some(lance_weather.params()),
    )
    .await?;
    lance_weather.set_delays(PUT_DELAY, Duration::ZERO);

    let bare = bare_put(&peer).await?;
    let mut own = Latencies::default();
    compare(
        "b1 durable put of 1 row, idle, p50",
        Unit::Millis,
        ROUNDS,
        async |round| {
            weather.reseed(round as u64);
            let mut latencies = Latencies::default();
            for batch in of_round(&batches, round) {
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                table.put(vec![batch.clone()]).await?;
                latencies.add(began.elapsed());
                own.add(began.elapsed());
            }
            Ok(latencies.micros(0.5) / 1e3)
        },
        async |round| {
            lance_weather.reseed(round as u64);
            let mut latencies = Latencies::default();
            for batch in of_round(&for_lance, round) {
                tokio::time::sleep(PAUSE).await;
                let began = Instant::now();
                peer.writer.put(vec![batch.clone()]).await?;
                latencies.add(began.elapsed());
            }
            Ok(latencies.micros(0.5) / 1e3)
        },
    )
    .await?;
    println!(
        "  a bare PUT takes L = {bare:.1} ms at the median; our p50 is {:.2} L",
        own.micros(0.5) / 1e3 / bare
    );

    let session = ours::session(&table)?;
    let found = session.sql("SELECT n FROM t").await?.collect().await?;
    check(
        "ours",
        rows::count_and_sum(&found),
        rows::count_and_sum(&batches),
    )?;
    let found = peer.scan(&["n"]).await?;
    check(
        "Lance",
        rows::count_and_sum(&found),
        rows::count_and_sum(&batches),
    )?;
    peer.writer.abort().await?;
    Ok(())
}

fn of_round(batches: &[RecordBatch], round: usize) -> &[RecordBatch] {
    &batches[round * PUTS..(round + 1) * PUTS]
}

/// The median of a PUT through the same wrapper, in milliseconds.
async fn bare_put(peer: &LancePeer) -> Result<f64> {
    let store = peer.dataset.object_store(None).await?;
    let mut latencies = Latencies::default();
    for number in 0..41 {
        let path = peer
            .dataset
            .branch_location()
            .path
            .join(format!("probe-{number}"));
        let began = Instant::now();
        store.inner.put(&path, vec![0u8; 512].into()).await?;
        latencies.add(began.elapsed());
    }
    Ok(latencies.micros(0.5) / 1e3)
}
