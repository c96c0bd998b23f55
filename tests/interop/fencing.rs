//! One writer at a time, whichever kind it is.

use datafusion_memwal::ErrorKind;
use lance::dataset::WriteParams;

use super::kinds::INT64;
use super::lance_side::LanceSide;
use super::our_side;
use super::script::{BASE, FIRST, model};

fn is_fenced(error: &lance::Error) -> bool {
    matches!(
        error.fence_reason(),
        Some(lance_core::FenceReason::PeerClaimedEpoch)
    )
}

#[tokio::test]
async fn we_fence_lances_writer() {
    for at_flush in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        let dataset = INT64.write_base(&uri, BASE, WriteParams::default()).await;
        let old = LanceSide::start(&uri, dataset).await;
        old.run(&INT64, FIRST).await;
        let table = our_side::open(&uri).await;
        let expected = model(BASE, &[FIRST]);
        let error = match at_flush {
            true => match old.writer.force_freeze_active().await {
                Ok(fence) => fence.wait().await.unwrap_err(),
                Err(error) => error,
            },
            false => old
                .writer
                .put(vec![INT64.rows(&[(0, 66)])])
                .await
                .unwrap_err(),
        };
        assert!(is_fenced(&error), "at flush: {at_flush}: {error}");
        assert!(is_fenced(&old.writer.check_fenced().await.unwrap_err()));
        our_side::assert_holds(&table, &INT64, &expected, "the old writer is fenced").await;
        old.crash().await;
        drop(table);
        let table = our_side::open(&uri).await;
        our_side::assert_holds(&table, &INT64, &expected, "opened again").await;
    }
}

#[tokio::test]
async fn lances_writer_fences_us() {
    for at_flush in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().join("t").to_str().unwrap().to_string();
        INT64.write_base(&uri, BASE, WriteParams::default()).await;
        let old = our_side::open(&uri).await;
        our_side::run(&old, &INT64, FIRST).await;
        let lance = LanceSide::open(&uri).await;
        let error = match at_flush {
            true => old.flush().await.unwrap_err(),
            false => old.put(vec![INT64.rows(&[(0, 66)])]).await.unwrap_err(),
        };
        assert_eq!(
            error.kind(),
            ErrorKind::Fenced,
            "at flush: {at_flush}: {error}"
        );
        assert_eq!(old.snapshot().unwrap_err().kind(), ErrorKind::Fenced);
        let get = old.get(&INT64.key_values(0)).await.unwrap_err();
        assert_eq!(get.kind(), ErrorKind::Fenced);
        let delete = old.delete(vec![INT64.keys(&[0])]).await.unwrap_err();
        assert_eq!(delete.kind(), ErrorKind::Fenced);
        let expected = model(BASE, &[FIRST]);
        lance
            .assert_holds(&INT64, &expected, "the old writer is fenced")
            .await;
        assert_eq!(old.close().await.unwrap_err().kind(), ErrorKind::Fenced);
        lance.crash().await;
        let table = our_side::open(&uri).await;
        our_side::assert_holds(&table, &INT64, &expected, "opened again").await;
    }
}
