//! Files of messages on tokio.
#![allow(clippy::unwrap_used)]

use tesseral_core::DType;
use tesseral_tensogram::{
    DataObjectDescriptor, DecodeOptions, EncodeOptions, GlobalMetadata, TensogramError, TensogramFile,
};

#[test]
fn asynchronous_reads_equal_blocking_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tgm");
    let mut file = TensogramFile::create(&path).unwrap();
    for n in 0..5_u8 {
        let descriptor = DataObjectDescriptor::raw(DType::UInt8, &[3]);
        file.append(&GlobalMetadata::default(), &[(&descriptor, &[n; 3])], &EncodeOptions::default())
            .unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let file = TensogramFile::open_async(&path).await.unwrap();
        assert_eq!(file.message_count_async().await.unwrap(), 5);
        for n in 0..5_u8 {
            let (_, objects) = file.decode_message_async(n.into(), &DecodeOptions::default()).await.unwrap();
            assert_eq!(objects[0].1, [n; 3][..]);
            assert_eq!(
                file.read_message_async(n.into()).await.unwrap(),
                file.read_message(n.into()).unwrap()
            );
        }
        let past = file.read_message_async(5).await.unwrap_err();
        assert!(matches!(past, TensogramError::Object { what: "message", index: 5, count: 5 }));
        let missing = TensogramFile::open_async(folder.path().join("none.tgm")).await.unwrap_err();
        assert!(matches!(missing, TensogramError::Io(_)));
    });
}
