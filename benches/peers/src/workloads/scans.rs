//! What the scan workloads share.

use std::time::{Duration, Instant};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use datafusion_memwal::MemWalTable;

use crate::harness::{Result, check};
use crate::lance_peer::LancePeer;
use crate::rows;

const QUERY: &str = "SELECT count(*), sum(n) FROM t";

/// Milliseconds of one scan by SQL, out of `times`; each answer is checked afterwards.
pub async fn by_sql(session: &SessionContext, times: usize, expected: (usize, i64)) -> Result<f64> {
    let mut answers = Vec::with_capacity(times);
    let began = Instant::now();
    for _ in 0..times {
        answers.push(session.sql(QUERY).await?.collect().await?);
    }
    let millis = began.elapsed().as_secs_f64() * 1e3 / times as f64;
    for answer in answers {
        let value = |column: usize| {
            answer[0]
                .column(column)
                .as_primitive::<Int64Type>()
                .value(0)
        };
        check("SQL", (value(0) as usize, value(1)), expected)?;
    }
    Ok(millis)
}

/// Milliseconds of one scan of the same column by Lance's scanner, summed by hand.
pub async fn by_lance(peer: &LancePeer, times: usize, expected: (usize, i64)) -> Result<f64> {
    let mut answers = Vec::with_capacity(times);
    let began = Instant::now();
    for _ in 0..times {
        answers.push(rows::count_and_sum(&peer.scan(&["n"]).await?));
    }
    let millis = began.elapsed().as_secs_f64() * 1e3 / times as f64;
    for answer in answers {
        check("Lance", answer, expected)?;
    }
    Ok(millis)
}

/// Waits until nothing is on its way: the memtables that were frozen are generations, or,
/// where flushes are held up, their encoding has ended.
pub async fn settle(table: &MemWalTable, in_memory: bool) -> Result<()> {
    if in_memory {
        tokio::time::sleep(Duration::from_secs(2)).await;
        return Ok(());
    }
    while is_freezing(table).await? {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn is_freezing(table: &MemWalTable) -> Result<bool> {
    let tiers = table.tiers().await?;
    Ok(tiers.iter().any(|tier| tier.tier == "frozen"))
}

/// Where the rows of a large table lie.
pub fn place(in_memory: bool) -> &'static str {
    match in_memory {
        true => "all in memtables",
        false => "generations + memtable",
    }
}
