//! Options that one writer has stored with the table, read by the other.

use std::time::Duration;

use datafusion_memwal::{FlushInterval, MemWalTable, TableOptions};
use lance::Dataset;
use lance::dataset::WriteParams;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};

use super::kinds::INT64;
use super::lance_side::LanceSide;
use super::our_side;
use super::script::{FIRST, model};

#[tokio::test]
async fn lance_understands_the_options_that_we_store() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let changed = [
        ("durable_write", "true"),
        ("flush_interval", "on_demand"),
        ("max_wal_buffer_size", "1MiB"),
        ("max_wal_persist_retries", "7"),
        ("wal_persist_retry_base_delay", "9ms"),
        ("max_memtable_size", "2MiB"),
        ("max_memtable_rows", "500"),
        ("max_memtable_batches", "600"),
        ("max_memtable_wal_entries", "50"),
        ("max_memtable_age", "5m"),
        ("max_unflushed_size", "8MiB"),
        ("backpressure_timeout", "3s"),
    ];
    let mut builder = MemWalTable::builder(&uri);
    for (key, value) in changed {
        builder = builder.with_option(key, value);
    }
    let created = builder.create(INT64.schema(), &INT64.key_names()).await;
    let table = created.unwrap();
    let options = table.options().clone();
    our_side::run(&table, &INT64, FIRST).await;
    drop(table);

    let dataset = Dataset::open(&uri).await.unwrap();
    let details = dataset.mem_wal_index_details().await.unwrap().unwrap();
    assert_eq!(details.num_shards, 1);
    assert_eq!(details.sharding_specs.len(), 1);
    assert!(details.maintained_indexes.is_empty() && !details.maintain_all_indexes);
    let stored = details.writer_config_defaults;
    let expected = [
        ("durable_write", "true"),
        ("max_wal_buffer_size", "1048576"),
        ("max_wal_flush_interval_ms", "1"),
        ("max_wal_persist_retries", "7"),
        ("wal_persist_retry_base_delay_ms", "9"),
        ("max_memtable_size", "2097152"),
        ("max_memtable_rows", "500"),
        ("max_memtable_batches", "600"),
        ("max_unflushed_memtable_bytes", "8388608"),
    ];
    for (key, value) in expected {
        assert_eq!(stored.get(key).map(String::as_str), Some(value), "{key}");
    }
    // Under a name that Lance might read otherwise there is nothing.
    let lances = ["max_", "wal_", "durable_write"];
    let ours = |key: &&String| !lances.iter().any(|name| key.starts_with(name));
    assert!(
        stored
            .keys()
            .filter(ours)
            .all(|key| key.starts_with("memwal."))
    );

    let lance = LanceSide::open(&uri).await;
    lance
        .assert_holds(&INT64, &model(&[], &[FIRST]), "taken over")
        .await;
    lance.crash().await;
    let table = MemWalTable::open(&uri).await.unwrap();
    assert_eq!(
        table.options(),
        &options,
        "Lance's writer leaves them alone"
    );
}

/// A table that Lance made with `config` as its defaults, in our hands.
async fn stored_by_lance(
    uri: &str,
    config: ShardWriterConfig,
    more: &[(&str, &str)],
) -> MemWalTable {
    let mut dataset = INT64.write_base(uri, &[], WriteParams::default()).await;
    let mut builder = dataset
        .initialize_mem_wal()
        .unsharded()
        .writer_config_defaults(config);
    for (key, value) in more {
        builder = builder.add_writer_config_default(*key, *value);
    }
    builder.execute().await.unwrap();
    let lance = LanceSide::open(uri).await;
    lance.run(&INT64, FIRST).await;
    lance.crash().await;
    let table = MemWalTable::open(uri).await.unwrap();
    our_side::assert_holds(&table, &INT64, &model(&[], &[FIRST]), "options of Lance").await;
    table
}

#[tokio::test]
async fn we_go_by_the_defaults_that_lance_stored() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let table = stored_by_lance(&uri, ShardWriterConfig::default(), &[]).await;
    assert_eq!(
        table.options(),
        &TableOptions::default(),
        "the defaults are the same"
    );

    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let config = ShardWriterConfig {
        durable_write: false,
        max_wal_buffer_size: 4096,
        max_wal_flush_interval: Some(Duration::from_millis(30)),
        max_wal_persist_retries: 5,
        wal_persist_retry_base_delay: Duration::from_millis(11),
        max_memtable_size: 1 << 20,
        max_memtable_rows: 1000,
        max_memtable_batches: 100,
        max_unflushed_memtable_bytes: 1 << 22,
        ..ShardWriterConfig::default()
    };
    let foreign = [("hnsw.v_idx.num_edges", "20"), ("someone.elses", "?")];
    let table = stored_by_lance(&uri, config, &foreign).await;
    let expected = TableOptions {
        durable_write: false,
        flush_interval: FlushInterval::AtLeast(Duration::from_millis(30)),
        max_wal_buffer_size: 4096,
        max_wal_persist_retries: 5,
        wal_persist_retry_base_delay: Duration::from_millis(11),
        max_memtable_size: 1 << 20,
        max_memtable_rows: 1000,
        max_memtable_batches: 100,
        max_unflushed_size: 1 << 22,
        ..TableOptions::default()
    };
    assert_eq!(table.options(), &expected);
}

#[tokio::test]
async fn defaults_beyond_our_limits_are_brought_within_them() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let config = ShardWriterConfig {
        max_wal_flush_interval: Some(Duration::ZERO),
        max_wal_buffer_size: 0,
        max_memtable_size: 1 << 31,
        max_memtable_rows: 1_000_000,
        max_memtable_batches: 50_000,
        max_unflushed_memtable_bytes: 1 << 20,
        ..ShardWriterConfig::default()
    };
    let table = stored_by_lance(&uri, config, &[]).await;
    let options = table.options();
    assert_eq!(options.flush_interval, FlushInterval::OnDemand);
    assert_eq!(
        (options.max_memtable_rows, options.max_memtable_batches),
        (100_000, 8_000)
    );
    assert!(options.max_unflushed_size >= options.max_memtable_size);
    assert!(options.max_wal_buffer_size > 0);
}
