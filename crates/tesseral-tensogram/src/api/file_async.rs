//! Asynchronous access to files of messages. Reading and decoding run on blocking threads.

use std::path::PathBuf;

use bytes::Bytes;
use tokio::task::spawn_blocking;

use super::error::Result;
use super::file::TensogramFile;
use super::options::DecodeOptions;
use crate::wire::descriptor::Descriptor;
use crate::wire::metadata::Metadata;

impl TensogramFile {
    /// Runs `work` on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let file = self.clone();
        match spawn_blocking(move || work(&file)).await {
            Ok(done) => done,
            Err(stopped) => Err(std::io::Error::other(stopped).into()),
        }
    }

    /// Opens a file and scans its messages.
    ///
    /// # Errors
    /// `Io`.
    pub async fn open_async(path: impl Into<PathBuf>) -> Result<Self> {
        let file = Self::open(path);
        file.message_count_async().await?;
        Ok(file)
    }

    /// Asynchronous [`message_count`](Self::message_count).
    ///
    /// # Errors
    /// As [`message_count`](Self::message_count).
    pub async fn message_count_async(&self) -> Result<usize> {
        self.run_blocking(Self::message_count).await
    }

    /// Asynchronous [`read_message`](Self::read_message).
    ///
    /// # Errors
    /// As [`read_message`](Self::read_message).
    pub async fn read_message_async(&self, index: usize) -> Result<Bytes> {
        self.run_blocking(move |file| file.read_message(index)).await
    }

    /// Asynchronous [`decode_message`](Self::decode_message).
    ///
    /// # Errors
    /// As [`decode_message`](Self::decode_message).
    pub async fn decode_message_async(
        &self,
        index: usize,
        options: &DecodeOptions,
    ) -> Result<(Metadata, Vec<(Descriptor, Bytes)>)> {
        let options = options.clone();
        self.run_blocking(move |file| file.decode_message(index, &options)).await
    }
}
