//! Runs the SQL tour of the README, so that what it promises is what happens.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;

use crate::engine::Engine;
use crate::placement::Variant;

const README: &str = include_str!("../README.md");
const TOUR_BEGIN: &str = "<!-- tour begins: `cargo test --test sql -- readme` runs it -->";
const TOUR_END: &str = "<!-- tour ends -->";
/// What the README writes where a test has a directory of its own.
const README_DIR: &str = "/tmp/memwal";

/// One `sql` block, and the `text` block after it that shows what its last statement returns.
struct Step<'a> {
    sql: &'a str,
    shown: Option<&'a str>,
}

pub async fn run_tour() -> Result<(), String> {
    let work_dir = TempDir::with_prefix("memwal-readme-").map_err(|error| error.to_string())?;
    let mut engine = Engine::open(Variant::PLAIN, Arc::new(work_dir))
        .await
        .map_err(|error| error.to_string())?;
    let steps = steps()?;
    for step in &steps {
        let mut returned = String::new();
        for statement in step.sql.split(";\n").map(str::trim) {
            if statement.is_empty() {
                continue;
            }
            let sql = statement.replace(README_DIR, "${WORK_DIR}");
            let (_, batches) = engine
                .execute(&sql)
                .await
                .map_err(|error| format!("{statement}\n{error}"))?;
            returned = pretty_format_batches(&batches)
                .map_err(|error| error.to_string())?
                .to_string();
        }
        if let Some(shown) = step.shown
            && shown.trim() != returned
        {
            return Err(format!(
                "{}\nthe README shows\n{}\nand it returns\n{returned}",
                step.sql,
                shown.trim()
            ));
        }
    }
    Ok(())
}

fn steps() -> Result<Vec<Step<'static>>, String> {
    let tour = README
        .split_once(TOUR_BEGIN)
        .and_then(|(_, rest)| rest.split_once(TOUR_END))
        .map(|(tour, _)| tour)
        .ok_or("the README has no tour between its markers")?;
    let mut steps: Vec<Step<'static>> = Vec::new();
    // Between two fences lies prose, then a block, then prose.
    for block in tour.split("```").skip(1).step_by(2) {
        if let Some(sql) = block.strip_prefix("sql\n") {
            steps.push(Step { sql, shown: None });
        } else if let Some(shown) = block.strip_prefix("text\n") {
            let step = steps
                .last_mut()
                .ok_or("a result stands before any statement")?;
            step.shown = Some(shown);
        }
    }
    match steps.is_empty() {
        true => Err("the tour has no statement".to_string()),
        false => Ok(steps),
    }
}
