//! Runs every `*.slt` file beside it, each in all the ways that its folder asks for.
//!
//! ```text
//! cargo test --test sql                       everything
//! cargo test --test sql -- half::query        one placement of one folder
//! cargo test --test sql -- --complete insert  writes the expected output of what matches
//! ```

mod engine;
mod placement;
mod readme;

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion_sqllogictest::{df_value_validator, read_dir_recursive, value_normalizer};
use sqllogictest::harness::{self, Arguments, Failed, Trial};
use sqllogictest::{MakeConnection, Runner, strict_column_validator};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::engine::Engine;
use crate::placement::Variant;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sql-tests");
/// A file that takes longer hangs.
const FILE_LIMIT_SECONDS: u64 = 300;
const WORKER_THREADS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let (complete, rest): (Vec<String>, Vec<String>) =
        std::env::args().partition(|argument| argument == "--complete");
    let arguments = Arguments::from_iter(rest);
    let files = files()?;
    if !complete.is_empty() {
        return write_expected_output(&files, arguments.filter.as_deref().unwrap_or_default());
    }
    let mut trials = vec![Trial::test("sql::readme", || {
        within_limit(readme::run_tour()).map_err(Failed::from)
    })];
    for file in files {
        for variant in Variant::of(&file) {
            let name = variant.trial_name(&file);
            let file = file.clone();
            trials.push(Trial::test(name, move || {
                within_limit(run_file(&file, variant)).map_err(Failed::from)
            }));
        }
    }
    harness::run(&arguments, trials).exit()
}

/// The test files, relative to the folder of this runner.
fn files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files: Vec<PathBuf> = read_dir_recursive(FOLDER)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .map(|path| path.strip_prefix(FOLDER).map(Path::to_path_buf))
        .collect::<Result<_, _>>()?;
    files.sort();
    Ok(files)
}

async fn run_file(file: &Path, variant: Variant) -> Result<(), String> {
    let mut runner = new_runner(variant).map_err(|error| error.to_string())?;
    let outcome = runner.run_file_async(Path::new(FOLDER).join(file)).await;
    runner.shutdown_async().await;
    outcome.map_err(|error| error.display(false).to_string())
}

fn write_expected_output(files: &[PathBuf], filter: &str) -> Result<(), Box<dyn Error>> {
    for file in files {
        if !Variant::PLAIN.trial_name(file).contains(filter) {
            continue;
        }
        println!("{}", file.display());
        within_limit(async {
            let mut runner = new_runner(Variant::PLAIN).map_err(|error| error.to_string())?;
            let outcome = runner
                .update_test_file(
                    Path::new(FOLDER).join(file),
                    " ",
                    df_value_validator,
                    value_normalizer,
                    strict_column_validator,
                )
                .await;
            runner.shutdown_async().await;
            outcome.map_err(|error| error.to_string())
        })?;
    }
    Ok(())
}

/// A runner whose connections share one directory, gone when the last of them is.
fn new_runner(
    variant: Variant,
) -> std::io::Result<Runner<Engine, impl MakeConnection<Conn = Engine>>> {
    let work_dir = Arc::new(TempDir::with_prefix("memwal-sql-")?);
    let connect = move || {
        let work_dir = Arc::clone(&work_dir);
        Engine::open(variant, work_dir)
    };
    let mut runner = Runner::new(connect);
    runner.add_label(variant.placement.name());
    runner.with_normalizer(value_normalizer);
    runner.with_validator(df_value_validator);
    runner.with_column_validator(strict_column_validator);
    Ok(runner)
}

/// Runs `work` on a runtime of its own, and calls a hang a failure.
fn within_limit(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime: Runtime = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let limit = Duration::from_secs(FILE_LIMIT_SECONDS);
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, work).await });
    // Nothing that still runs may keep the next trial waiting.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|_| Err(format!("did not end within {FILE_LIMIT_SECONDS} s")))
}
