//! Tables that Lance wrote, taken over by us and back.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatchIterator;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::{MergeInsertBuilder, WhenMatched, WriteParams};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use lance_table::system_index::mem_wal::CompactedSsTable;

use super::kinds::{INT64, KINDS, Kind};
use super::lance_side::LanceSide;
use super::our_side;
use super::script::{BASE, FIRST, SECOND, Step, THIRD, model};

/// We read what Lance wrote, go on, give it back, and take it again.
async fn take_over(uri: &str, lance: LanceSide, kind: &Kind, base: &[(i64, i64)], closed: bool) {
    lance.run(kind, FIRST).await;
    let first = model(base, &[FIRST]);
    lance.assert_holds(kind, &first, "before the end").await;
    let manifest = lance.writer.manifest().await.unwrap().unwrap();
    assert_eq!(manifest.sstables.len(), 1, "the rest is in the log only");
    let shard = lance.shard;
    lance.end(closed).await;

    let table = our_side::open(uri).await;
    let stats = table.stats();
    assert_eq!(stats.generations, if closed { 2 } else { 1 });
    assert_eq!(
        stats.active_rows == 0,
        closed,
        "what was not flushed is replayed"
    );
    our_side::assert_holds(&table, kind, &first, "taken over").await;
    our_side::run(&table, kind, SECOND).await;
    let second = model(base, &[FIRST, SECOND]);
    our_side::assert_holds(&table, kind, &second, "we wrote").await;
    our_side::end(table, closed).await;

    let lance = LanceSide::open(uri).await;
    assert_eq!(lance.shard, shard, "we write the shard that is there");
    lance.assert_holds(kind, &second, "taken back").await;
    lance.run(kind, THIRD).await;
    let third = model(base, &[FIRST, SECOND, THIRD]);
    lance.assert_holds(kind, &third, "Lance wrote").await;
    lance.end(closed).await;

    let table = our_side::open(uri).await;
    our_side::assert_holds(&table, kind, &third, "the second time").await;
    our_side::end(table, closed).await;
}

async fn of_every_kind(base: &[(i64, i64)], closed: bool) {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let dataset = kind.write_base(&uri, base, WriteParams::default()).await;
        let lance = LanceSide::start(&uri, dataset).await;
        take_over(&uri, lance, kind, base, closed).await;
    }
}

#[tokio::test]
async fn a_crashed_table_of_lance_goes_to_us_and_back() {
    of_every_kind(&[], false).await;
}

#[tokio::test]
async fn a_closed_table_of_lance_goes_to_us_and_back() {
    of_every_kind(BASE, true).await;
}

#[tokio::test]
async fn a_table_whose_index_lance_maintains_goes_to_us_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let mut dataset = INT64.write_base(&uri, BASE, WriteParams::default()).await;
    for column in ["n", "id"] {
        let params = ScalarIndexParams::default();
        dataset
            .create_index(&[column], IndexType::BTree, None, &params, true)
            .await
            .unwrap();
    }
    // Lance maintains every index of the base unless told otherwise.
    let lance = LanceSide::start(&uri, dataset).await;
    let maintained = lance.writer.maintained_index_names().await;
    assert!(maintained.contains(&"n_idx".to_string()), "{maintained:?}");
    take_over(&uri, lance, &INT64, BASE, false).await;
}

/// Entries of a writer without a memtable name no generation.
#[tokio::test]
async fn a_log_that_names_no_generation_is_replayed() {
    const LOGGED: &[Step] = &[
        Step::Put(&[(0, 1), (1, 1)]),
        Step::Put(&[(1, 2), (2, 2), (1, 3)]),
        Step::Put(&[(5, 4)]),
    ];
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let mut dataset = kind.write_base(&uri, BASE, WriteParams::default()).await;
        let builder = dataset.initialize_mem_wal().unsharded();
        builder.execute().await.unwrap();
        let lance = LanceSide::open_as(&uri, false).await;
        lance.run(kind, LOGGED).await;
        lance.crash().await;
        let table = our_side::open(&uri).await;
        let logged = model(BASE, &[LOGGED]);
        our_side::assert_holds(&table, kind, &logged, "taken over").await;
        our_side::run(&table, kind, FIRST).await;
        let first = model(BASE, &[LOGGED, FIRST]);
        our_side::assert_holds(&table, kind, &first, "we wrote").await;
        drop(table);
        let lance = LanceSide::open(&uri).await;
        lance.assert_holds(kind, &first, "taken back").await;
        lance.crash().await;
    }
}

/// What a compactor has put into the base table is read there and not twice.
#[tokio::test]
async fn a_generation_that_is_compacted_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let dataset = INT64.write_base(&uri, &[], WriteParams::default()).await;
    let lance = LanceSide::start(&uri, dataset).await;
    lance.run(&INT64, FIRST).await;
    let (base, shard) = (Arc::clone(&lance.dataset), lance.shard);
    lance.crash().await;

    let flushed: Vec<Step> = FIRST
        .iter()
        .take_while(|step| !matches!(step, Step::Flush))
        .copied()
        .collect();
    let rows: Vec<(i64, i64)> = model(&[], &[&flushed]).into_iter().collect();
    let batch = INT64.rows(&rows);
    let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    let mut merge = MergeInsertBuilder::try_new(base, INT64.key_names()).unwrap();
    merge
        .when_matched(WhenMatched::UpdateAll)
        .mark_sstables_as_compacted(vec![CompactedSsTable::new(shard, 1)]);
    let merge = merge.try_build().unwrap();
    merge.execute_reader(Box::new(reader)).await.unwrap();

    let table = our_side::open(&uri).await;
    assert_eq!(table.stats().generations, 0);
    let first = model(&[], &[FIRST]);
    our_side::assert_holds(&table, &INT64, &first, "compacted").await;
    our_side::run(&table, &INT64, SECOND).await;
    let second = model(&[], &[FIRST, SECOND]);
    our_side::assert_holds(&table, &INT64, &second, "we wrote").await;
    drop(table);
    let table = our_side::open(&uri).await;
    assert_eq!(table.stats().generations, 1);
    our_side::assert_holds(&table, &INT64, &second, "opened again").await;
}
