//! Tables that we wrote, taken over by Lance and back.

use std::path::Path;

use datafusion_memwal::MemWalTable;
use lance::dataset::WriteParams;
use lance::dataset::mem_wal::util::parse_bit_reversed_filename;

use super::kinds::{INT64, KINDS, Kind};
use super::lance_side::LanceSide;
use super::our_side;
use super::script::{BASE, FIRST, SECOND, Step, THIRD, model};

/// Lance replays what we logged, reads it, goes on; so do we, and Lance reads it again.
async fn hand_over(uri: &str, table: MemWalTable, kind: &Kind, base: &[(i64, i64)], closed: bool) {
    our_side::run(&table, kind, FIRST).await;
    let first = model(base, &[FIRST]);
    our_side::assert_holds(&table, kind, &first, "before the crash").await;
    let stats = table.stats();
    assert_eq!(stats.flushes, 1);
    assert!(stats.wal_appends > 4, "several log entries");
    assert!(
        stats.wal_appends < stats.puts,
        "puts were joined: {stats:?}"
    );
    let unflushed = stats.active_rows;
    our_side::end(table, closed).await;

    let lance = LanceSide::open(uri).await;
    let replayed = lance.writer.memtable_stats().await.unwrap();
    match closed {
        true => assert!([0, unflushed as usize].contains(&replayed.row_count)),
        false => assert_eq!(replayed.row_count, unflushed as usize),
    }
    lance.assert_holds(kind, &first, "taken over").await;
    lance.run(kind, SECOND).await;
    let second = model(base, &[FIRST, SECOND]);
    lance.assert_holds(kind, &second, "Lance wrote").await;
    lance.end(closed).await;

    let table = our_side::open(uri).await;
    our_side::assert_holds(&table, kind, &second, "taken back").await;
    our_side::run(&table, kind, THIRD).await;
    let third = model(base, &[FIRST, SECOND, THIRD]);
    our_side::assert_holds(&table, kind, &third, "we wrote").await;
    our_side::end(table, closed).await;

    let lance = LanceSide::open(uri).await;
    lance.assert_holds(kind, &third, "the second time").await;
    lance.end(closed).await;
}

#[tokio::test]
async fn a_crashed_table_of_ours_goes_to_lance_and_back() {
    for kind in KINDS.into_iter().filter(|kind| !kind.has_gaps()) {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let table = our_side::create(&uri, kind).await;
        hand_over(&uri, table, kind, &[], false).await;
    }
}

#[tokio::test]
async fn a_closed_table_of_ours_goes_to_lance_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let table = our_side::create(&uri, &INT64).await;
    hand_over(&uri, table, &INT64, &[], true).await;
}

#[tokio::test]
async fn rows_of_a_plain_dataset_are_replaced_and_deleted() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        // Row 9 is deleted by Lance's own deletion file.
        let mut rows = BASE.to_vec();
        rows.push((9, 0));
        let mut dataset = kind.write_base(&uri, &rows, WriteParams::default()).await;
        assert_eq!(dataset.get_fragments().len(), 2);
        let ids: Vec<i32> = dataset
            .schema()
            .fields
            .iter()
            .map(|field| field.id)
            .collect();
        let dense: Vec<i32> = (0..ids.len() as i32).collect();
        assert_eq!(ids != dense, kind.has_gaps(), "{}: {ids:?}", kind.name);
        dataset.delete(&kind.condition(9)).await.unwrap();
        let table = our_side::open(&uri).await;
        our_side::assert_holds(&table, kind, &model(BASE, &[]), "before any write").await;
        hand_over(&uri, table, kind, BASE, false).await;
    }
}

#[tokio::test]
async fn a_base_with_stable_row_ids_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t").to_str().unwrap().to_string();
    let params = WriteParams {
        enable_stable_row_ids: true,
        ..WriteParams::default()
    };
    let mut dataset = INT64.write_base(&uri, BASE, params).await;
    dataset.delete(&INT64.condition(2)).await.unwrap();
    let base: Vec<(i64, i64)> = BASE.iter().copied().filter(|row| row.0 != 2).collect();
    let table = our_side::open(&uri).await;
    our_side::assert_holds(&table, &INT64, &model(&base, &[]), "before any write").await;
    hand_over(&uri, table, &INT64, &base, false).await;
}

/// Undoes every commit but the first, as if the process had died before each flush ended.
fn forget_flushes(table: &str) {
    let shard = std::fs::read_dir(Path::new(table).join("_mem_wal")).unwrap();
    let manifests = shard.last().unwrap().unwrap().path().join("manifest");
    let mut removed = 0;
    for entry in std::fs::read_dir(manifests).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if parse_bit_reversed_filename(name) != Some(1) {
            removed += 1;
            std::fs::remove_file(path).unwrap();
        }
    }
    assert!(removed > 1, "there were flushes to forget");
}

#[tokio::test]
async fn a_log_of_several_generations_is_replayed() {
    const STEPS: &[Step] = &[
        Step::Put(&[(0, 1), (1, 1)]),
        Step::Put(&[(1, 2)]),
        Step::Delete(&[0]),
        Step::Put(&[(2, 1), (3, 1)]),
        Step::Flush,
        Step::Put(&[(0, 5)]),
    ];
    for (flushed, lance_first) in [(true, true), (false, true), (false, false)] {
        let when = format!("flushed: {flushed}, to Lance first: {lance_first}");
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let table = MemWalTable::builder(&uri)
            .with_option("flush_interval", "on_demand")
            .with_option("max_memtable_rows", "2")
            .create(INT64.schema(), &INT64.key_names())
            .await
            .unwrap();
        our_side::run(&table, &INT64, STEPS).await;
        assert!(table.stats().generations >= 3);
        drop(table);
        if !flushed {
            forget_flushes(&uri);
        }
        let expected = model(&[], &[STEPS]);
        if lance_first {
            let lance = LanceSide::open(&uri).await;
            let manifest = lance.writer.manifest().await.unwrap().unwrap();
            assert!(manifest.sstables.len() >= 3, "{when}");
            lance.assert_holds(&INT64, &expected, &when).await;
            lance.crash().await;
        }
        let table = our_side::open(&uri).await;
        assert!(table.stats().generations >= 3, "{when}");
        our_side::assert_holds(&table, &INT64, &expected, &when).await;
    }
}
