//! d1: point lookups through the API, half of them for keys that are not there.

use std::time::Instant;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;

use crate::harness::{ROUNDS, Result, Unit, check, compare};
use crate::lance_peer::{LancePeer, keyed, not_durable};
use crate::random::Random;
use crate::{ours, rows};

const TIER_ROWS: usize = 10_000;
const BATCH_ROWS: usize = 1_000;

pub async fn run() -> Result<()> {
    lookups(0, 20_000, 1_000).await?;
    lookups(4, 4_000, 300).await
}

/// Lookups in a memtable above `generations` generations, each tier with its own keys.
/// The two sides need not do equally many: what is compared is the time of one.
async fn lookups(generations: usize, own_count: usize, peer_count: usize) -> Result<()> {
    let (folder, lance_folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let uri = folder.path().join("t").display().to_string();
    let lance_uri = lance_folder.path().join("t").display().to_string();
    let table = ours::create(&uri, true, &[ours::NOT_DURABLE], None).await?;
    let peer = LancePeer::create(&lance_uri, not_durable(), None).await?;
    for tier in 0..=generations {
        // Keys are even; an odd one between them is a miss that no range excludes.
        let first = (tier * TIER_ROWS * 2) as i64;
        let batches = rows::sequence(first, 2, TIER_ROWS, BATCH_ROWS);
        ours::put_all(&table, &batches).await?;
        peer.put_all(&keyed(&batches)?).await?;
        if tier < generations {
            table.flush().await?;
            peer.flush().await?;
        } else {
            peer.wait_readable(batches.len()).await?;
        }
    }
    let planner = peer.planner().await?;
    let keys = keys(generations + 1, own_count.max(peer_count));

    compare(
        &format!("d1 lookup, memtable + {generations} generations"),
        Unit::Micros,
        ROUNDS,
        async |_| {
            let mut found = Vec::with_capacity(own_count);
            let began = Instant::now();
            for key in &keys[..own_count] {
                found.push(table.get(&[ScalarValue::Int64(Some(*key))]).await?);
            }
            let micros = began.elapsed().as_secs_f64() * 1e6 / own_count as f64;
            check_all("ours", &keys[..own_count], &found)?;
            Ok(micros)
        },
        async |_| {
            let mut found = Vec::with_capacity(peer_count);
            let began = Instant::now();
            for key in &keys[..peer_count] {
                let key = [ScalarValue::Int64(Some(*key))];
                found.push(planner.lookup(&key, None).await?);
            }
            let micros = began.elapsed().as_secs_f64() * 1e6 / peer_count as f64;
            check_all("Lance", &keys[..peer_count], &found)?;
            Ok(micros)
        },
    )
    .await?;
    table.close().await?;
    peer.writer.abort().await?;
    Ok(())
}

/// Random keys over all tiers, every other one a miss.
fn keys(tiers: usize, count: usize) -> Vec<i64> {
    let mut random = Random::seeded(7);
    (0..count as i64)
        .map(|lookup| random.below((tiers * TIER_ROWS) as u64) as i64 * 2 + (lookup & 1))
        .collect()
}

fn check_all(side: &str, keys: &[i64], found: &[Option<RecordBatch>]) -> Result<()> {
    for (key, row) in keys.iter().zip(found) {
        let value = row.as_ref().map(|row| {
            let n = row.column_by_name("n").expect("a column n");
            n.as_primitive::<Int64Type>().value(0)
        });
        let expected = (key % 2 == 0).then(|| rows::value_of(*key));
        check(&format!("{side}, key {key}"), value, expected)?;
    }
    Ok(())
}
