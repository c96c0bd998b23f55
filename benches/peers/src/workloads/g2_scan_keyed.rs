//! g2: count and sum of 336,776 rows with a key, 5 % of them rewritten.

use lance::dataset::mem_wal::ShardWriterConfig;

use crate::harness::{ROUNDS, Result, Unit, compare};
use crate::lance_peer::{LancePeer, keyed, not_durable};
use crate::random::Random;
use crate::store::{Weather, shared_uri};
use crate::workloads::scans::{by_lance, by_sql, place, settle};
use crate::{ours, rows};

const ROWS: usize = 336_776;
const REWRITTEN: usize = ROWS / 20;
const BATCH_ROWS: usize = 8_192;
const QUERIES: usize = 10;

pub async fn run() -> Result<()> {
    let mut values: Vec<(i64, i64)> = (0..ROWS as i64)
        .map(|id| (id, rows::value_of(id)))
        .collect();
    let mut random = Random::seeded(11);
    let rewrites: Vec<(i64, i64)> = (0..REWRITTEN)
        .map(|_| {
            (
                random.below(ROWS as u64) as i64,
                random.below(1 << 16) as i64,
            )
        })
        .collect();
    let mut batches: Vec<_> = values.chunks(BATCH_ROWS).map(rows::batch).collect();
    batches.extend(rewrites.chunks(1_000).map(rows::batch));
    for (id, n) in rewrites {
        values[id as usize].1 = n;
    }
    let final_rows: Vec<_> = values.chunks(BATCH_ROWS).map(rows::batch).collect();
    let expected = rows::count_and_sum(&final_rows);

    let memtable = ours::memtable_session(&final_rows)?;
    let lance_weather = Weather::calm(3);
    let config = ShardWriterConfig {
        // All rows in one memtable, which is Lance's best case.
        max_memtable_rows: ROWS + REWRITTEN + 1,
        ..not_durable()
    };
    let peer = LancePeer::create(&shared_uri(), config, Some(lance_weather.params())).await?;
    peer.put_all(&keyed(&batches)?).await?;
    peer.wait_readable(batches.len()).await?;

    for in_memory in [true, false] {
        let weather = Weather::calm(3);
        let table = ours::create(
            &shared_uri(),
            true,
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
            &format!("g2 keyed, {}; MemTable", place(in_memory)),
            Unit::Millis,
            ROUNDS,
            async |_| by_sql(&session, QUERIES, expected).await,
            async |_| by_sql(&memtable, QUERIES, expected).await,
        )
        .await?;
        compare(
            &format!("g2 keyed, {}; LsmScanner", place(in_memory)),
            Unit::Millis,
            ROUNDS,
            async |_| by_sql(&session, QUERIES, expected).await,
            async |_| by_lance(&peer, 2, expected).await,
        )
        .await?;
    }
    peer.writer.abort().await?;
    Ok(())
}
