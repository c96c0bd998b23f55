//! g1: count and sum of 336,776 rows of a table without a key, by SQL.

use crate::harness::{ROUNDS, Result, Unit, compare};
use crate::store::{Weather, shared_uri};
use crate::workloads::scans::{by_sql, place, settle};
use crate::{ours, rows};

const ROWS: usize = 336_776;
const BATCH_ROWS: usize = 8_192;
const QUERIES: usize = 10;

pub async fn run() -> Result<()> {
    let batches = rows::sequence(0, 1, ROWS, BATCH_ROWS);
    let expected = rows::count_and_sum(&batches);
    let memtable = ours::memtable_session(&batches)?;
    for in_memory in [true, false] {
        let weather = Weather::calm(2);
        let table = ours::create(
            &shared_uri(),
            false,
            &[ours::NOT_DURABLE],
            Some(weather.params()),
        )
        .await?;
        if in_memory {
            weather.hold_flushes();
        }
        ours::put_all(&table, &batches).await?;
        settle(&table, in_memory).await?;
        let session = ours::session(&table)?;
        compare(
            &format!("g1 scan, {}; MemTable", place(in_memory)),
            Unit::Millis,
            ROUNDS,
            async |_| by_sql(&session, QUERIES, expected).await,
            async |_| by_sql(&memtable, QUERIES, expected).await,
        )
        .await?;
    }
    Ok(())
}
