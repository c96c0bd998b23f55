//! g3: the scan of rows that were put one at a time.

use crate::harness::{ROUNDS, Result, Unit, compare};
use crate::store::{Weather, shared_uri};
use crate::workloads::scans::by_sql;
use crate::{ours, rows};

/// As many as stay in one memtable, which is frozen at 100,000.
const ROWS: usize = 99_999;
const QUERIES: usize = 20;

pub async fn run() -> Result<()> {
    let by_thousand = rows::sequence(0, 1, ROWS, 1_000);
    let expected = rows::count_and_sum(&by_thousand);
    let weather = Weather::calm(4);

    let options = [ours::NOT_DURABLE];
    let single = ours::create(&shared_uri(), false, &options, Some(weather.params())).await?;
    ours::put_all(&single, &rows::sequence(0, 1, ROWS, 1)).await?;
    let single = ours::session(&single)?;
    let large = ours::create(&shared_uri(), false, &options, Some(weather.params())).await?;
    ours::put_all(&large, &by_thousand).await?;
    let large = ours::session(&large)?;
    let memtable = ours::memtable_session(&rows::sequence(0, 1, ROWS, 8_192))?;

    for (name, peer) in [
        ("g3 rows put singly; put by 1,000", &large),
        ("g3 rows put singly; MemTable", &memtable),
    ] {
        compare(
            name,
            Unit::Millis,
            ROUNDS,
            async |_| by_sql(&single, QUERIES, expected).await,
            async |_| by_sql(peer, QUERIES, expected).await,
        )
        .await?;
    }
    Ok(())
}
