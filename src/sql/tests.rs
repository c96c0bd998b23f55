//! The SQL surface over a real Lance base, two generations and a memtable.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::{MemWalSessionExt, MemWalTableProvider};
use crate::table::MemWalTable;

fn session() -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(4)
        .with_information_schema(true);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_memwal()
        .build();
    SessionContext::new_with_state(state)
}

async fn run(ctx: &SessionContext, sql: &str) -> Result<String, String> {
    let frame = ctx.sql(sql).await.map_err(|error| error.to_string())?;
    let batches = frame.collect().await.map_err(|error| error.to_string())?;
    Ok(pretty_format_batches(&batches).unwrap().to_string())
}

/// The values of the first column of the answer, sorted.
async fn column(ctx: &SessionContext, sql: &str) -> Vec<String> {
    let text = run(ctx, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut values: Vec<String> = text
        .lines()
        .skip(3)
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| Some(line.split('|').nth(1)?.trim().to_string()))
        .collect();
    values.sort();
    values
}

async fn table(ctx: &SessionContext) -> MemWalTable {
    let provider = ctx.table_provider("t").await.unwrap();
    provider
        .downcast_ref::<MemWalTableProvider>()
        .unwrap()
        .table()
        .clone()
}

/// Keys 1..=6 lie in generation 1, 2 and 7 in generation 2, 3 and 8 in the memtable; 4
/// is deleted in generation 2, 5 in the memtable.
async fn layered(location: &str) -> SessionContext {
    let ctx = session();
    let create = format!(
        "CREATE EXTERNAL TABLE t (id BIGINT NOT NULL, n BIGINT NOT NULL, s VARCHAR, PRIMARY KEY (id)) \
         STORED AS MEMWAL LOCATION '{location}'"
    );
    run(&ctx, &create).await.unwrap();
    let delete = async |id: i64| {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let key = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![id]))]).unwrap();
        table(&ctx).await.delete(vec![key]).await.unwrap();
    };
    for (insert, deleted) in [
        (
            "(1, 10, 'a'), (2, 20, 'b'), (3, 30, NULL), (4, 40, 'd'), (5, 50, 'e'), (6, 60, 'f')",
            None,
        ),
        ("(2, 21, 'b'), (7, 70, 'g')", Some(4)),
        ("(3, 31, 'c'), (8, 0, 'x'), (8, 80, 'h')", Some(5)),
    ] {
        run(&ctx, &format!("INSERT INTO t VALUES {insert}"))
            .await
            .unwrap();
        if let Some(id) = deleted {
            delete(id).await;
        }
        if !insert.contains("'h'") {
            run(&ctx, "SELECT * FROM memwal_flush('t')").await.unwrap();
        }
    }
    ctx
}

#[tokio::test]
async fn the_newest_row_wins_on_every_path() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = layered(&format!("{}/t", folder.path().display())).await;
    for paths in ["true", "false"] {
        run(&ctx, &format!("SET memwal.key_index = {paths}"))
            .await
            .unwrap();
        run(&ctx, &format!("SET memwal.lance_pushdown = {paths}"))
            .await
            .unwrap();
        let cases: [(&str, &[&str]); 19] = [
            ("SELECT id FROM t", &["1", "2", "3", "6", "7", "8"]),
            ("SELECT n FROM t", &["10", "21", "31", "60", "70", "80"]),
            ("SELECT count(*) FROM t", &["6"]),
            ("SELECT n FROM t WHERE id = 2", &["21"]),
            (
                "SELECT n FROM t WHERE id IN (2, 3, 4, 99, 2)",
                &["21", "31"],
            ),
            (
                "SELECT n FROM t WHERE id = 1 OR id = 5 OR id = 8",
                &["10", "80"],
            ),
            (
                "SELECT id FROM t WHERE id > 2 AND id <= 7",
                &["3", "6", "7"],
            ),
            ("SELECT id FROM t WHERE id BETWEEN 4 AND 5", &[]),
            ("SELECT id FROM t WHERE n = 20", &[]),
            ("SELECT id FROM t WHERE n <> 21 AND n < 40", &["1", "3"]),
            ("SELECT id FROM t WHERE s IS NULL", &[]),
            ("SELECT id FROM t WHERE s LIKE '%c'", &["3"]),
            ("SELECT id FROM t WHERE n = 80 LIMIT 1", &["8"]),
            ("SELECT count(*) FROM (SELECT 1 FROM t LIMIT 4)", &["4"]),
            (
                "SELECT count(*) FROM (SELECT id FROM t LIMIT 10 OFFSET 5)",
                &["1"],
            ),
            ("SELECT 100 / n FROM t WHERE n > 60", &["1", "1"]),
            (
                "SELECT a.n FROM t a JOIN t b ON a.id = b.id WHERE b.n = 31",
                &["31"],
            ),
            ("SELECT max(n) FROM t", &["80"]),
            (
                "SELECT id FROM t WHERE id NOT IN (1, 2, 3) AND s > 'f'",
                &["7", "8"],
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(
                column(&ctx, sql).await,
                expected,
                "{sql} with paths {paths}"
            );
        }
    }
}

#[tokio::test]
async fn explain_names_tiers_and_index() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = layered(&format!("{}/t", folder.path().display())).await;
    let scan = run(&ctx, "EXPLAIN SELECT s FROM t WHERE n > 5 LIMIT 2")
        .await
        .unwrap();
    for part in [
        "MemWalScanExec",
        "fetch=2",
        "GenerationScanExec: generation=1",
        "generation=2",
        "LanceRead",
        "tier=active",
    ] {
        assert!(scan.contains(part), "{part} in {scan}");
    }
    assert!(
        !scan.contains("FilterExec") && !scan.contains("LimitExec: skip=0"),
        "{scan}"
    );
    let lookup = run(&ctx, "EXPLAIN SELECT s FROM t WHERE id = 5")
        .await
        .unwrap();
    assert!(
        lookup.contains("IndexLookupExec: generation=1, index=key, keys=1"),
        "{lookup}"
    );
    let analyzed = run(&ctx, "EXPLAIN ANALYZE SELECT s FROM t WHERE id IN (-999)")
        .await
        .unwrap();
    assert!(analyzed.contains("generations_skipped=1"), "{analyzed}");
}

#[tokio::test]
async fn a_table_without_key_keeps_every_row_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = session();
    let create = format!(
        "CREATE EXTERNAL TABLE t (x INT, v FLOAT[2]) STORED AS MEMWAL LOCATION '{}/t'",
        folder.path().display()
    );
    run(&ctx, &create).await.unwrap();
    assert_eq!(column(&ctx, "SELECT count(*) FROM t").await, ["0"]);
    for insert in ["(3, [1.0, 2.0])", "(1, NULL), (3, [1, 2])", "(2, NULL)"] {
        run(&ctx, &format!("INSERT INTO t VALUES {insert}"))
            .await
            .unwrap();
        run(&ctx, "SELECT * FROM memwal_flush('t')").await.unwrap();
    }
    let rows = run(&ctx, "SELECT x FROM t").await.unwrap();
    let order: Vec<&str> = rows
        .lines()
        .skip(3)
        .filter_map(|line| line.split('|').nth(1))
        .map(str::trim)
        .collect();
    assert_eq!(order, ["3", "1", "3", "2"]);
    assert_eq!(column(&ctx, "SELECT count(*) FROM t").await, ["4"]);
    assert_eq!(
        column(&ctx, "SELECT count(*) FROM t WHERE v IS NULL").await,
        ["2"]
    );
    let all = column(&ctx, "INSERT INTO t SELECT x + 10, v FROM t").await;
    assert_eq!(all, ["4"]);
    assert_eq!(
        column(&ctx, "INSERT INTO t SELECT * FROM t WHERE false").await,
        ["0"]
    );
    let wrong = run(&ctx, "INSERT INTO t VALUES (9, [1.0])")
        .await
        .unwrap_err();
    assert!(
        wrong.contains("FixedSizeList") || wrong.contains("exactly 2"),
        "{wrong}"
    );
    assert_eq!(column(&ctx, "SELECT count(*) FROM t").await, ["8"]);
}

#[tokio::test]
async fn statements_that_are_not_served_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = layered(&format!("{}/t", folder.path().display())).await;
    let at = |clauses: &str, columns: &str| {
        format!(
            "CREATE EXTERNAL TABLE u {columns} STORED AS MEMWAL {clauses} LOCATION '{}/t'",
            folder.path().display()
        )
    };
    let cases = [
        (
            "DELETE FROM t WHERE id = 1".to_string(),
            "DELETE on table 't'",
        ),
        ("UPDATE t SET n = 1".to_string(), "UPDATE on table 't'"),
        (
            "INSERT OVERWRITE t VALUES (1, 1, 'a')".to_string(),
            "INSERT OVERWRITE on table 't'",
        ),
        (
            "INSERT INTO t SELECT 1, NULL, 'a'".to_string(),
            "'n' is NOT NULL",
        ),
        (
            "INSERT INTO t (id, s) VALUES (1, 'a')".to_string(),
            "'n' is NOT NULL",
        ),
        (
            at("", "(id BIGINT NOT NULL)"),
            "declared (id Int64 NOT NULL), stored (id Int64 NOT NULL, n",
        ),
        (
            at("PARTITIONED BY (s)", "(id BIGINT NOT NULL, s VARCHAR)"),
            "PARTITIONED BY",
        ),
        (
            at("", "(id BIGINT DEFAULT 3)"),
            "DEFAULT of the column 'id'",
        ),
        (
            "SELECT * FROM memwal_flush('nope')".to_string(),
            "no table 'nope'",
        ),
        (
            "SELECT * FROM memwal_tiers(1)".to_string(),
            "memwal_tiers('t')",
        ),
    ];
    for (sql, part) in cases {
        let error = run(&ctx, &sql).await.unwrap_err();
        assert!(error.contains(part), "{sql}: {error}");
    }
    assert_eq!(column(&ctx, "SELECT count(*) FROM t").await, ["6"]);
}

#[tokio::test]
async fn two_tables_at_one_location_share_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let location = format!("{}/t", folder.path().display());
    let ctx = layered(&location).await;
    let other = session();
    run(
        &other,
        &format!("CREATE EXTERNAL TABLE t STORED AS MEMWAL LOCATION '{location}/'"),
    )
    .await
    .unwrap();
    run(
        &other,
        "INSERT INTO t (s, id, n) VALUES (arrow_cast('z', 'Utf8View'), 9, 90)",
    )
    .await
    .unwrap();
    assert_eq!(column(&ctx, "SELECT s FROM t WHERE id = 9").await, ["z"]);
    let shown = run(&other, "SHOW CREATE TABLE t").await.unwrap();
    assert!(
        shown.contains("PRIMARY KEY (id)") && shown.contains("n BIGINT NOT NULL"),
        "{shown}"
    );
}

#[tokio::test]
async fn scans_of_one_plan_are_pinned_to_the_oldest_snapshot() {
    use datafusion::config::ConfigOptions;
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_plan::union::UnionExec;
    use datafusion::physical_plan::{ExecutionPlan, collect};

    let folder = tempfile::tempdir().unwrap();
    let ctx = layered(&format!("{}/t", folder.path().display())).await;
    let provider = ctx.table_provider("t").await.unwrap();
    let scan = async || {
        provider
            .scan(&ctx.state(), Some(&vec![0]), &[], None)
            .await
            .unwrap()
    };
    let before = scan().await;
    run(&ctx, "INSERT INTO t VALUES (50, 1, 'new')")
        .await
        .unwrap();
    run(&ctx, "SELECT * FROM memwal_flush('t')").await.unwrap();
    let after = scan().await;
    let rows = async |plan: &Arc<dyn ExecutionPlan>| -> usize {
        let batches = collect(Arc::clone(plan), ctx.task_ctx()).await.unwrap();
        batches.iter().map(RecordBatch::num_rows).sum()
    };
    let union = UnionExec::try_new(vec![after, before]).unwrap();
    assert_eq!(rows(&union).await, 7 + 6);
    let rule = super::rules::PinSnapshotRule;
    let pinned = rule.optimize(union, &ConfigOptions::new()).unwrap();
    assert_eq!(rows(&pinned).await, 6 + 6);
}

#[tokio::test]
async fn concurrent_creates_of_one_location_open_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE t (id BIGINT NOT NULL PRIMARY KEY) STORED AS MEMWAL LOCATION '{}/t'",
        folder.path().display()
    );
    let sessions: Vec<SessionContext> = (0..4).map(|_| session()).collect();
    let creates = sessions.iter().map(|ctx| run(ctx, &create));
    for created in futures::future::join_all(creates).await {
        created.unwrap();
    }
    for (id, ctx) in sessions.iter().enumerate() {
        run(ctx, &format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
    }
    for ctx in &sessions {
        assert_eq!(column(ctx, "SELECT count(*) FROM t").await, ["4"]);
    }
}

#[tokio::test]
async fn large_tables_are_read_by_several_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = session();
    let create = format!(
        "CREATE EXTERNAL TABLE t (id BIGINT NOT NULL PRIMARY KEY, n BIGINT) STORED AS MEMWAL LOCATION '{}/t'",
        folder.path().display()
    );
    run(&ctx, &create).await.unwrap();
    let insert = |from: u64, to: u64, n: i64| {
        format!("INSERT INTO t SELECT value, {n} FROM generate_series({from}, {to})")
    };
    run(&ctx, &insert(1, 90_000, 1)).await.unwrap();
    run(&ctx, "SELECT * FROM memwal_flush('t')").await.unwrap();
    run(&ctx, &insert(80_001, 170_000, 2)).await.unwrap();
    assert_eq!(column(&ctx, "SELECT count(*) FROM t").await, ["170000"]);
    assert_eq!(column(&ctx, "SELECT sum(n) FROM t").await, ["260000"]);
    for (condition, rows) in [
        ("id > 10 AND id <= 79000", "78990"),
        ("id >= 80001", "90000"),
        ("id > 79990 AND id < 80011", "20"),
        ("n = 1", "80000"),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        assert_eq!(column(&ctx, &sql).await, [rows], "{condition}");
        let limited = format!("SELECT count(*) FROM (SELECT 1 FROM t WHERE {condition} LIMIT 7)");
        assert_eq!(column(&ctx, &limited).await, ["7"], "{condition}");
    }
    let large = run(&ctx, &insert(1, 100_001, 3)).await.unwrap_err();
    assert!(large.contains("nothing was written"), "{large}");
    assert_eq!(column(&ctx, "SELECT max(n) FROM t").await, ["2"]);
}

#[tokio::test]
async fn a_memtable_scan_hands_out_the_buffers_of_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let ctx = session();
    let create = format!(
        "CREATE EXTERNAL TABLE t (x BIGINT, s VARCHAR) STORED AS MEMWAL LOCATION '{}/t'",
        folder.path().display()
    );
    run(&ctx, &create).await.unwrap();
    let insert = "INSERT INTO t SELECT value, 's' FROM generate_series(1, 4096)";
    run(&ctx, insert).await.unwrap();
    let snapshot = table(&ctx).await.snapshot().unwrap();
    let stored = snapshot.memtables()[0].view.segments()[0]
        .batch
        .column(0)
        .to_data();
    let frame = ctx.sql("SELECT x FROM t").await.unwrap();
    let read = frame.collect().await.unwrap()[0].column(0).to_data();
    assert_eq!(read.buffers()[0].as_ptr(), stored.buffers()[0].as_ptr());
}

#[tokio::test]
async fn an_existing_dataset_is_the_base_table() {
    use datafusion::arrow::array::{ArrayRef, RecordBatchIterator, StringArray};

    let folder = tempfile::tempdir().unwrap();
    let location = format!("{}/t", folder.path().display());
    let fields = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
    ]);
    let declared = crate::schema::declare("t", &fields, &["id".to_string()]).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new((1..=1000).collect::<Int64Array>()),
        Arc::new((1..=1000).map(|_| Some("base")).collect::<StringArray>()),
    ];
    let rows = RecordBatch::try_new(Arc::clone(&declared), columns).unwrap();
    // Three fragments, so that row addresses are not offsets.
    for part in [
        rows.slice(0, 400),
        rows.slice(400, 300),
        rows.slice(700, 300),
    ] {
        let rows = RecordBatchIterator::new([Ok(part)], Arc::clone(&declared));
        let mode = lance::dataset::WriteMode::Append;
        let params = lance::dataset::WriteParams {
            mode,
            ..Default::default()
        };
        lance::Dataset::write(rows, location.as_str(), Some(params))
            .await
            .unwrap();
    }
    let ctx = session();
    run(
        &ctx,
        &format!("CREATE EXTERNAL TABLE t STORED AS MEMWAL LOCATION '{location}'"),
    )
    .await
    .unwrap();
    run(
        &ctx,
        "INSERT INTO t VALUES (500, 'gen'), (1001, 'gen'), (900, 'gen')",
    )
    .await
    .unwrap();
    run(&ctx, "SELECT * FROM memwal_flush('t')").await.unwrap();
    run(
        &ctx,
        "INSERT INTO t VALUES (900, 'mem'), (2, 'mem'), (1002, 'mem')",
    )
    .await
    .unwrap();
    let plan = run(&ctx, "EXPLAIN SELECT * FROM t").await.unwrap();
    assert!(plan.contains("BaseScanExec: tier=base"), "{plan}");
    for key_index in ["true", "false"] {
        run(&ctx, &format!("SET memwal.key_index = {key_index}"))
            .await
            .unwrap();
        let cases: [(&str, &[&str]); 7] = [
            ("SELECT count(*) FROM t", &["1002"]),
            ("SELECT count(*) FROM t WHERE s = 'base'", &["997"]),
            (
                "SELECT s FROM t WHERE id IN (1, 2, 500, 900, 1001)",
                &["base", "gen", "gen", "mem", "mem"],
            ),
            (
                "SELECT count(*) FROM t WHERE id >= 899 AND id < 902 AND s = 'base'",
                &["2"],
            ),
            ("SELECT count(*) FROM t WHERE id > 0", &["1002"]),
            ("SELECT id FROM t WHERE s = 'gen'", &["1001", "500"]),
            (
                "SELECT count(*) FROM (SELECT 1 FROM t WHERE s <> 'base' LIMIT 5)",
                &["5"],
            ),
        ];
        for (sql, expected) in cases {
            assert_eq!(
                column(&ctx, sql).await,
                expected,
                "{sql} with key_index {key_index}"
            );
        }
    }
}
