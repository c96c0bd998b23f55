//! One workload per file. Each prints a line for every comparison that it makes.

mod a1_put_batches;
mod a5_put_rows;
mod b1_durable;
mod d1_lookup;
mod g1_scan;
mod g2_scan_keyed;
mod g3_scan_single_rows;
mod h1_reopen;
mod scans;

use crate::harness::Result;

pub const NAMES: [&str; 8] = ["a1", "a5", "b1", "d1", "g1", "g2", "g3", "h1"];

pub async fn run(name: &str) -> Result<()> {
    match name {
        "a1" => a1_put_batches::run().await,
        "a5" => a5_put_rows::run().await,
        "b1" => b1_durable::run().await,
        "d1" => d1_lookup::run().await,
        "g1" => g1_scan::run().await,
        "g2" => g2_scan_keyed::run().await,
        "g3" => g3_scan_single_rows::run().await,
        "h1" => h1_reopen::run().await,
        other => Err(format!("no workload '{other}'; there are {NAMES:?} and all").into()),
    }
}
