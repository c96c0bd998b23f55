use std::sync::Arc;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::collect;
use datafusion::prelude::{col, lit};

use super::fixture::{base, lookup, run, target_of, write};
use crate::generation::*;
use crate::index::key::KeyCodec;
use crate::schema::TableSchema;

#[tokio::test]
async fn a_plan_has_exactly_the_columns_asked_for() {
    let target = target_of(base("memory://table", &["id"], false).await).await;
    let written = write(&target).await;
    let generation = Generation::open(&target, 7, &written.folder).await.unwrap();
    let names = ["word".to_string(), "id".to_string()];
    let filter = || Some(col("id").gt(lit(1_i64)));

    let plan = scan_plan(generation.dataset(), &names, filter(), true)
        .await
        .unwrap();
    assert_eq!(plan.properties().output_partitioning().partition_count(), 1);
    let batch = run(plan).await;
    assert_eq!(batch.num_columns(), 3);
    assert_eq!(batch.schema().field(0).name(), "word");
    assert_eq!(
        batch["_rowaddr"].as_primitive::<UInt64Type>().values(),
        &[3, 4, 5]
    );

    let plan = scan_plan(generation.dataset(), &[], None, false)
        .await
        .unwrap();
    assert_eq!(plan.schema().fields().len(), 0);
    let batches = collect(plan, Arc::new(TaskContext::default()))
        .await
        .unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 4);

    let plan = scan_plan(generation.dataset(), &[], filter(), true)
        .await
        .unwrap();
    let batch = run(plan).await;
    assert_eq!((batch.num_columns(), batch.num_rows()), (1, 3));
}

#[tokio::test]
async fn addresses_of_the_base_are_physical() {
    // With stable row ids an update keeps the row id, and the address moves.
    for stable_row_ids in [false, true] {
        let mut dataset = base("memory://table", &["id"], stable_row_ids).await;
        dataset.delete("id = 3").await.unwrap();
        let dataset = lance::dataset::UpdateBuilder::new(Arc::new(dataset))
            .update_where("id = 1")
            .unwrap()
            .set("word", "'moved'")
            .unwrap()
            .build()
            .unwrap()
            .execute()
            .await
            .unwrap()
            .new_dataset;
        let codec = KeyCodec::new(&TableSchema::from_base("t", dataset.schema()).unwrap()).unwrap();
        let keys = key_rows(&dataset, &codec).await.unwrap();
        let found = [1, 3, 9].map(|id| lookup(&codec, &keys, &["id"], id));
        assert_eq!(found, [Some(1 << 32), None, Some(2)], "{stable_row_ids}");
        let plan = scan_plan(&dataset, &["id".to_string()], None, true)
            .await
            .unwrap();
        let batch = run(plan).await;
        assert_eq!(
            batch["_rowaddr"].as_primitive::<UInt64Type>().values(),
            &[2, 1 << 32]
        );
    }
}
