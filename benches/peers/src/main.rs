//! Compares datafusion-memwal with its peers, both in this process. See README.md.

mod harness;
mod lance_peer;
mod ours;
mod random;
mod rows;
mod store;
mod workloads;

use std::time::Instant;

use harness::Result;

const WORKERS: usize = 2;

fn main() -> Result<()> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() || names.iter().any(|name| name == "all") {
        names = workloads::NAMES.map(String::from).to_vec();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for name in names {
            let began = Instant::now();
            workloads::run(&name).await?;
            println!("  ({name} took {:.0} s)", began.elapsed().as_secs_f64());
        }
        Ok(())
    })
}
