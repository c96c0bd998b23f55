//! The bytes of an entry: round trips, damage, older schemas.

use super::*;

#[test]
fn an_entry_comes_back_joined() {
    let schema = table();
    let many: Vec<RecordBatch> = (0..100).map(|id| rows(&schema, &[id, id + 1000])).collect();
    let encoded = encode(&schema, &HEADER, &many).unwrap();
    assert_eq!(encoded.batches, 1);
    assert_eq!(
        encoded.bytes,
        encode(&schema, &HEADER, &many).unwrap().bytes
    );
    let entry = decode(&schema, &path(), encoded.bytes).unwrap();
    assert_eq!(entry.header, HEADER);
    let expected = datafusion::arrow::compute::concat_batches(schema.rows(), &many).unwrap();
    assert_eq!(entry.batches, [expected]);

    let large: Vec<i64> = (0..8_000).collect();
    let batches = [
        rows(&schema, &large),
        rows(&schema, &[1, 2]),
        rows(&schema, &large),
    ];
    let encoded = encode(&schema, &HEADER, &batches).unwrap();
    assert_eq!(encoded.batches, 2);
    let entry = decode(&schema, &path(), encoded.bytes).unwrap();
    let last = entry.batches[1].column(1).as_dictionary::<Int32Type>();
    let value = last
        .values()
        .as_string::<i32>()
        .value(last.key(7_999).unwrap());
    assert_eq!(value, "tag 7999", "each batch has its own dictionary");
    assert_eq!(
        encode(&schema, &HEADER, &[]).unwrap_err().kind(),
        ErrorKind::Internal
    );
}

#[test]
fn any_damage_is_found() {
    let schema = table();
    let refused = |bytes: Vec<u8>| {
        let error = decode(&schema, &path(), Bytes::from(bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(path().as_ref()), "{error}");
    };
    let good = example(&schema, &[1, 2]).to_vec();
    let checksum = good.len() - 8;
    for end in (0..good.len()).filter(|end| *end != checksum) {
        refused(good[..end].to_vec());
    }
    refused([good.as_slice(), &[0]].concat());
    for at in 0..good.len() {
        for bit in [0, 7] {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << bit;
            refused(flipped);
        }
    }
}

/// Lance writes no checksum, so Arrow sees the damage: it must not panic or give in.
#[test]
fn damage_without_a_checksum_does_no_harm() {
    let schema = table();
    let batch = rows(&schema, &[1, 2]);
    let good = lance_like(&batch, &[("writer_epoch", "1")]).to_vec();
    assert!(decode(&schema, &path(), Bytes::from(good.clone())).is_ok());
    for end in 0..good.len() {
        assert!(decode(&schema, &path(), Bytes::copy_from_slice(&good[..end])).is_err());
    }
    for at in 0..good.len() {
        for bit in [0, 5, 7] {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << bit;
            drop(decode(&schema, &path(), Bytes::from(flipped)));
        }
    }
}

fn lance_like(batch: &RecordBatch, metadata: &[(&str, &str)]) -> Bytes {
    let metadata: HashMap<String, String> = metadata
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    let schema = Schema::new_with_metadata(batch.schema_ref().fields().clone(), metadata);
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    let batch = batch.clone().with_schema(Arc::new(schema)).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    Bytes::from(writer.into_inner().unwrap())
}

fn with_id(field: Field, id: &str) -> Field {
    field.with_metadata(HashMap::from([(
        "lance:field_id".to_string(),
        id.to_string(),
    )]))
}

#[test]
fn an_older_schema_is_read_as_todays() {
    let schema = table();
    // The key under another name, a column that is gone, no tombstones.
    let old = Schema::new(vec![
        with_id(Field::new("gone", DataType::Utf8, true), "77"),
        with_id(Field::new("old_id", DataType::Int64, false), "0"),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["a", "b"])),
        Arc::new(Int64Array::from(vec![5, 6])),
    ];
    let batch = RecordBatch::try_new(Arc::new(old), columns).unwrap();
    let bytes = lance_like(&batch, &[("writer_epoch", "1")]);
    let entry = decode(&schema, &path(), bytes).unwrap();
    assert_eq!(entry.header.generation, None);
    let [batch] = entry.batches.as_slice() else {
        panic!("one batch");
    };
    assert_eq!(batch.schema(), *schema.rows());
    assert_eq!(ids(&entry.batches), [5, 6]);
    assert_eq!(batch.column(2).null_count(), 2);
    assert!(!batch.column(4).as_boolean().value(0));

    let one = |name: &str, id: &str, column: ArrayRef| {
        let field = with_id(Field::new(name, column.data_type().clone(), false), id);
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap()
    };
    let number: ArrayRef = Arc::new(Int64Array::from(vec![5]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["5"]));
    let good: &[(&str, &str)] = &[("writer_epoch", "1")];
    let blobs: &[(&str, &str)] = &[
        ("writer_epoch", "1"),
        ("mem_wal_target_data_file", "a.lance"),
    ];
    for (batch, metadata, kind, expected) in [
        // The same name with another id is another column.
        (
            one("id", "9", Arc::clone(&number)),
            good,
            ErrorKind::Corrupt,
            "'id' is missing",
        ),
        (
            one("id", "0", text),
            good,
            ErrorKind::Corrupt,
            "of type Utf8",
        ),
        (
            one("id", "0", Arc::clone(&number)),
            &[],
            ErrorKind::Corrupt,
            "writer_epoch",
        ),
        (
            one("id", "0", Arc::clone(&number)),
            blobs,
            ErrorKind::Unsupported,
            "blobs",
        ),
    ] {
        let error = decode(&schema, &path(), lance_like(&batch, metadata)).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(expected), "{error}");
    }
}
