//! Five thousand flights go into a table, are read at once, and survive a writer
//! that disappears:
//!
//! ```text
//! cargo run --example quickstart
//! ```

use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion_memwal::MemWalSessionExt;

const SAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/data/flights_sample.parquet"
);

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;

    println!("A table on local disk, empty.");
    let session = open(folder.path()).await?;

    println!("The sample goes in: ONE statement, one atomic change, in the log when it returns.");
    run(&session, LOAD).await?;

    println!("Nothing has been flushed, and all of it can be read.");
    show(&session, "SELECT * FROM memwal_tiers('flights')").await?;
    show(&session, WORST_CARRIERS).await?;

    println!("Rows come one at a time as well. A key that is there is replaced.");
    for row in [
        "(0, 'UA', 1545, 'EWR', 'IAH', 999, 1400)",
        "(1000000, 'ZZ', 1, 'JFK', 'SEA', 0, 2421)",
    ] {
        run(&session, &format!("INSERT INTO flights VALUES {row}")).await?;
    }
    let before = show(&session, TOTALS).await?;

    println!("The writer goes away, without a close: as if the process had been killed.");
    drop(session);

    println!("Another session opens what is there. Nothing is missing, nothing came twice.");
    let session = open(folder.path()).await?;
    let after = show(&session, TOTALS).await?;
    assert_eq!(before, after, "the same rows before and after");
    let one = show(&session, "SELECT dep_delay FROM flights WHERE id = 0").await?;
    assert!(one.contains("999"), "the newest row of a key wins");

    println!("A flush moves the memtable to a generation, a small Lance dataset.");
    run(&session, "SELECT * FROM memwal_flush('flights')").await?;
    let newer = "INSERT INTO flights VALUES (0, 'UA', 1545, 'EWR', 'IAH', 2, 1400)";
    run(&session, newer).await?;
    show(&session, "SELECT * FROM memwal_tiers('flights')").await?;

    println!("A query reads both as one; its plan names them.");
    show(
        &session,
        "EXPLAIN SELECT carrier, dep_delay FROM flights WHERE dest = 'IAH' AND distance > 1000",
    )
    .await?;
    let newest = show(&session, "SELECT dep_delay FROM flights WHERE id = 0").await?;
    assert!(!newest.contains("999"), "a row of a generation is replaced");
    Ok(())
}

const LOAD: &str = "
    INSERT INTO flights
    SELECT id, carrier, flight, origin, dest, dep_delay, distance FROM sample";

const WORST_CARRIERS: &str = "
    SELECT carrier, count(*) AS flights, round(avg(dep_delay), 1) AS delay_minutes FROM flights
    GROUP BY carrier HAVING count(*) > 100 ORDER BY delay_minutes DESC LIMIT 3";

const TOTALS: &str = "
    SELECT count(*) AS flights, sum(distance) AS miles, max(dep_delay) AS longest_delay,
           count(*) FILTER (WHERE carrier = 'ZZ') AS of_zz FROM flights";

/// A session that knows our tables, with `flights` in `folder`: made there, or
/// opened when it is there already.
async fn open(folder: &Path) -> Result<SessionContext> {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_memwal()
        .build();
    let session = SessionContext::new_with_state(state);
    let table = folder.join("flights");
    let create = format!(
        "CREATE EXTERNAL TABLE flights (
           id BIGINT NOT NULL, carrier VARCHAR NOT NULL, flight BIGINT, origin VARCHAR,
           dest VARCHAR, dep_delay BIGINT, distance BIGINT, PRIMARY KEY (id)
         ) STORED AS MEMWAL LOCATION '{}'",
        table.display()
    );
    run(&session, &create).await?;
    let sample = format!("CREATE EXTERNAL TABLE sample STORED AS PARQUET LOCATION '{SAMPLE}'");
    run(&session, &sample).await?;
    Ok(session)
}

async fn run(session: &SessionContext, sql: &str) -> Result<()> {
    session.sql(sql).await?.collect().await.map(|_| ())
}

async fn show(session: &SessionContext, sql: &str) -> Result<String> {
    let rows = session.sql(sql).await?.collect().await?;
    let text = pretty_format_batches(&rows)?.to_string();
    println!("{text}\n");
    Ok(text)
}
