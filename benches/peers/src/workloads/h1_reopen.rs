//! h1: opening a table again whose log has many entries, a GET taking 20 ms.

use std::time::{Duration, Instant};

use crate::harness::{Result, Unit, check, compare};
use crate::lance_peer::{LancePeer, durable, keyed};
use crate::store::{Weather, shared_uri};
use crate::{ours, rows};

/// As many as let Lance, which fetches one after the other, end seven rounds in time.
const ENTRIES: usize = 600;
const GET_DELAY: Duration = Duration::from_millis(20);
const ROUNDS: usize = 7;

pub async fn run() -> Result<()> {
    let batches = rows::sequence(0, 1, ENTRIES, 1);
    let expected = rows::count_and_sum(&batches);
    let (uri, lance_uri) = (shared_uri(), shared_uri());
    let (weather, lance_weather) = (Weather::calm(5), Weather::calm(5));

    let on_demand = [("flush_interval", "on_demand")];
    let table = ours::create(&uri, true, &on_demand, Some(weather.params())).await?;
    ours::put_all(&table, &batches).await?;
    drop(table);

    let config = || durable(Duration::from_millis(1));
    let peer = LancePeer::create(&lance_uri, config(), Some(lance_weather.params())).await?;
    peer.put_all(&keyed(&batches)?).await?;
    let shard = peer.shard();
    peer.writer.abort().await?;
    drop(peer);

    let (_, gets) = weather.requests();
    compare(
        &format!("h1 reopen, {ENTRIES} log entries"),
        Unit::Millis,
        ROUNDS,
        async |_| {
            weather.set_delays(Duration::ZERO, GET_DELAY);
            let began = Instant::now();
            let table = ours::open(&uri, &[], Some(weather.params())).await?;
            let millis = began.elapsed().as_secs_f64() * 1e3;
            weather.set_delays(Duration::ZERO, Duration::ZERO);
            let session = ours::session(&table)?;
            let found = session.sql("SELECT n FROM t").await?.collect().await?;
            check("ours", rows::count_and_sum(&found), expected)?;
            Ok(millis)
        },
        async |round| {
            // The first round would only fill caches, and opening fills none.
            if round == 0 {
                return Ok(0.0);
            }
            lance_weather.set_delays(Duration::ZERO, GET_DELAY);
            let began = Instant::now();
            let params = lance_weather.params();
            let peer = LancePeer::open(&lance_uri, shard, config(), params).await?;
            let millis = began.elapsed().as_secs_f64() * 1e3;
            lance_weather.set_delays(Duration::ZERO, Duration::ZERO);
            let found = peer.scan(&["n"]).await?;
            check("Lance", rows::count_and_sum(&found), expected)?;
            peer.writer.abort().await?;
            Ok(millis)
        },
    )
    .await?;
    let per_open = (weather.requests().1 - gets) / (ROUNDS as u64 + 1);
    println!("  an open of ours sends {per_open} GETs");
    Ok(())
}
