//! The same history in every placement: the older version of a key in the base table, a
//! generation, a frozen or the active memtable, the newer one in the same tier or any after
//! it. Every query must give what a plain table of the surviving rows gives.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use datafusion_memwal::MemWalTable;
use lance::dataset::{InsertBuilder, WriteParams};

use super::settle;
use super::support::fault_store::{Fault, Faults, Request};
use super::support::tables::{builder, keys, rows, schema, session, shared_uri, sql};

const TIERS: [&str; 4] = ["base", "generation", "frozen", "active"];

/// What one tier brings: rows, then deleted keys.
#[derive(Debug, Clone, Default)]
struct Change {
    rows: Vec<(i64, i64)>,
    deleted: Vec<i64>,
}

/// A table with one change in each tier, and the task that keeps the frozen memtable frozen.
struct Placed {
    table: MemWalTable,
    faults: Arc<Faults>,
    flush: tokio::task::JoinHandle<datafusion_memwal::Result<Option<datafusion_memwal::Flushed>>>,
}

async fn place(changes: &[Change; 4]) -> Placed {
    let (uri, faults) = (shared_uri(), Faults::new());
    write_base(&uri, &changes[0].rows).await;
    let options = [("flush_interval", "on_demand")];
    let table = builder(&uri, &faults, &options).open().await.unwrap();
    apply(&table, &changes[1]).await;
    table.flush().await.unwrap();
    apply(&table, &changes[2]).await;
    faults.add(Request::Put, "_gen_", Fault::Block, usize::MAX);
    let flush = tokio::spawn({
        let table = table.clone();
        async move { table.flush().await }
    });
    settle().await;
    apply(&table, &changes[3]).await;
    Placed {
        table,
        faults,
        flush,
    }
}

/// A plain Lance dataset with a key, in two fragments, as somebody else would write it.
async fn write_base(uri: &str, values: &[(i64, i64)]) {
    let fields = schema()
        .fields()
        .iter()
        .map(|field| {
            let mut field = field.as_ref().clone();
            if field.name() == "id" {
                let mark = ("lance-schema:unenforced-primary-key", "true");
                field.set_metadata([(mark.0.to_string(), mark.1.to_string())].into());
            }
            field
        })
        .collect::<Vec<_>>();
    let keyed = Arc::new(datafusion::arrow::datatypes::Schema::new(fields));
    let batch = RecordBatch::try_new(keyed, rows(values).columns().to_vec()).unwrap();
    let params = WriteParams {
        max_rows_per_file: batch.num_rows().div_ceil(2),
        ..WriteParams::default()
    };
    InsertBuilder::new(uri)
        .with_params(&params)
        .execute(vec![batch])
        .await
        .unwrap();
}

async fn apply(table: &MemWalTable, change: &Change) {
    table.put(vec![rows(&change.rows)]).await.unwrap();
    table.delete(vec![keys(&change.deleted)]).await.unwrap();
}

/// The rows that survive, in a plain table of DataFusion.
fn oracle(changes: &[Change; 4]) -> SessionContext {
    let mut model = BTreeMap::new();
    for change in changes {
        model.extend(change.rows.iter().copied());
        for id in &change.deleted {
            model.remove(id);
        }
    }
    let survivors: Vec<(i64, i64)> = model.into_iter().collect();
    let table = MemTable::try_new(schema(), vec![vec![rows(&survivors)]]).unwrap();
    let session = SessionContext::new();
    session.register_table("t", Arc::new(table)).unwrap();
    session
}

/// Queries whose answers are the same whatever order the rows come in.
const QUERIES: [&str; 26] = [
    "SELECT * FROM t ORDER BY id",
    "SELECT count(*) FROM t",
    "SELECT count(*), count(n), sum(n), min(n), max(n) FROM t",
    "SELECT count(*) FROM (SELECT 1 FROM t)",
    "SELECT n FROM t ORDER BY n",
    "SELECT DISTINCT n FROM t ORDER BY n",
    "SELECT id, n FROM t WHERE id = 1",
    "SELECT id, n FROM t WHERE id IN (1, 10, 12, 99) ORDER BY id",
    "SELECT id, n FROM t WHERE id >= 1 AND id < 12 ORDER BY id",
    "SELECT id, n FROM t WHERE id <= 1",
    "SELECT id, n FROM t WHERE n = 1",
    "SELECT id, n FROM t WHERE n = 2",
    "SELECT id, n FROM t WHERE n <> 2 ORDER BY id",
    "SELECT id, n FROM t WHERE n IS NULL",
    "SELECT id, n FROM t WHERE NOT (n = 1) ORDER BY id",
    "SELECT id, n FROM t WHERE n + 0 = 1",
    "SELECT id, n FROM t WHERE txt LIKE 'row 1' ORDER BY id",
    "SELECT id, n FROM t WHERE txt LIKE 'row %' AND n < 50 ORDER BY id",
    "SELECT id FROM t ORDER BY n DESC, id LIMIT 3",
    "SELECT id FROM t ORDER BY id LIMIT 2 OFFSET 1",
    "SELECT n, count(*) FROM t GROUP BY n ORDER BY n",
    "SELECT a.id, b.n FROM t a JOIN t b ON a.id = b.id ORDER BY a.id",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE n = 1) ORDER BY id",
    "SELECT id FROM t WHERE n > (SELECT avg(n) FROM t) ORDER BY id",
    "SELECT id, n FROM t UNION ALL SELECT id, n FROM t ORDER BY id, n",
    "SELECT id, row_number() OVER (ORDER BY id) AS r FROM t ORDER BY id",
];

/// How a condition may be answered: (`memwal.key_index`, `memwal.lance_pushdown`).
const SWITCHES: [(bool, bool); 3] = [(true, true), (false, true), (false, false)];

async fn text(session: &SessionContext, query: &str) -> String {
    let batches = sql(session, query).await.unwrap();
    match row_count(&batches) {
        0 => "no rows".to_string(),
        _ => pretty_format_batches(&batches).unwrap().to_string(),
    }
}

/// What every query gives on the surviving rows.
async fn answers(expected: &SessionContext) -> Vec<(&'static str, String)> {
    let mut answers = Vec::new();
    for query in QUERIES {
        answers.push((query, text(expected, query).await));
    }
    answers
}

async fn compare(
    table: &MemWalTable,
    expected: &SessionContext,
    answers: &[(&str, String)],
    switches: &[(bool, bool)],
    place: &str,
) {
    let session = session(table);
    for (key_index, lance_pushdown) in switches {
        for (option, value) in [("key_index", key_index), ("lance_pushdown", lance_pushdown)] {
            sql(&session, &format!("SET memwal.{option} = {value}"))
                .await
                .unwrap();
        }
        // The switches concern conditions only.
        let asked = answers
            .iter()
            .filter(|(query, _)| *key_index || query.contains("WHERE"));
        for (query, answer) in asked {
            assert_eq!(
                &text(&session, query).await,
                answer,
                "{place}, key_index={key_index}, lance_pushdown={lance_pushdown}: {query}"
            );
        }
    }
    let live: usize = count(expected).await.parse().unwrap();
    for limit in [1, live - 1, live, live + 1] {
        for filter in ["", "WHERE n <> 1", "WHERE id > 0"] {
            let all = format!("SELECT id, n FROM t {filter}");
            let all = row_count(&sql(expected, &all).await.unwrap());
            let some = format!("SELECT id, n FROM t {filter} LIMIT {limit}");
            let some = row_count(&sql(&session, &some).await.unwrap());
            assert_eq!(some, all.min(limit), "{place}: LIMIT {limit} {filter}");
        }
    }
    let tiers = table.tiers().await.unwrap();
    let visible: u64 = tiers.iter().filter_map(|tier| tier.visible_rows).sum();
    assert_eq!(visible as usize, live, "{place}: memwal_tiers");
}

fn row_count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

async fn count(session: &SessionContext) -> String {
    let counted = sql(session, "SELECT count(*) FROM t").await.unwrap();
    datafusion::arrow::util::display::array_value_to_string(counted[0].column(0), 0).unwrap()
}

/// Other rows in each tier, so that none is empty.
fn others() -> [Change; 4] {
    std::array::from_fn(|tier| {
        let tier = tier as i64;
        Change {
            rows: vec![(10 + tier, 1), (20 + tier, 40 + tier), (30, tier)],
            deleted: vec![],
        }
    })
}

async fn every_query_agrees_with_a_plain_table(older: usize) {
    for newer in older..4 {
        for delete in [false, true] {
            let mut changes = others();
            changes[older].rows.push((1, 1));
            match delete {
                // The base table is written by Lance, which leaves no tombstones.
                true if newer == 0 => continue,
                true => changes[newer].deleted.push(1),
                false if newer == 0 => continue,
                false => changes[newer].rows.push((1, 2)),
            }
            let place = format!("{} then {}, delete={delete}", TIERS[older], TIERS[newer]);
            let placed = place_and_explain(&changes).await;
            let expected = oracle(&changes);
            let answers = answers(&expected).await;
            compare(&placed.table, &expected, &answers, &SWITCHES, &place).await;
            placed.faults.heal();
            placed.flush.await.unwrap().unwrap();
            let place = format!("{place}, thawed");
            compare(&placed.table, &expected, &answers, &SWITCHES[..1], &place).await;
        }
    }
}

#[tokio::test]
async fn the_older_version_is_in_the_base_table() {
    every_query_agrees_with_a_plain_table(0).await;
}

#[tokio::test]
async fn the_older_version_is_in_a_generation() {
    every_query_agrees_with_a_plain_table(1).await;
}

#[tokio::test]
async fn the_older_version_is_in_a_frozen_memtable() {
    every_query_agrees_with_a_plain_table(2).await;
}

#[tokio::test]
async fn the_older_version_is_in_the_active_memtable() {
    every_query_agrees_with_a_plain_table(3).await;
}

/// Each of the four tiers is an operator of the plan, by name.
async fn place_and_explain(changes: &[Change; 4]) -> Placed {
    let placed = place(changes).await;
    let plan = text(&session(&placed.table), "EXPLAIN SELECT * FROM t").await;
    for operator in [
        "BaseScanExec: tier=base",
        "GenerationScanExec: generation=1",
        "MemtableScanExec: tier=frozen",
        "MemtableScanExec: tier=active",
    ] {
        assert!(plan.contains(operator), "{operator} is not in\n{plan}");
    }
    for absent in ["FilterExec", "Dedup", "AggregateExec"] {
        assert!(!plan.contains(absent), "{absent} is in\n{plan}");
    }
    placed
}
