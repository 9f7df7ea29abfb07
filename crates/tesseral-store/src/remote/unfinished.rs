//! Uploads in parts that did not end, which S3 keeps and bills until somebody removes them.
//!
//! The `object_store` crate removes one by its number, but does not list them.

use bytes::Bytes;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error as Failure, Result};
use reqwest::Method;
use serde::Deserialize;

use super::signed::{self, S3, SignedRequest};
use super::{MARK, MOST_MARKED};

/// An upload that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Upload {
    key: String,
    upload_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Page {
    #[serde(default, rename = "Upload")]
    uploads: Vec<Upload>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

impl Upload {
    /// Its name in listings.
    pub(crate) fn describe(&self) -> String {
        format!("{} (upload {})", self.key, self.upload_id)
    }

    /// Returns whether it is of an object, of one below it, or of their temporary names.
    fn belongs_to(&self, root: &Path) -> bool {
        match self.key.strip_prefix(root.as_ref()) {
            Some(rest) => {
                root.as_ref().is_empty()
                    || rest.is_empty()
                    || rest.starts_with(['/'])
                    || rest.starts_with(MARK)
            }
            None => false,
        }
    }
}

/// Lists the uploads of an object and of those below it. Empty if the server does not list them, or not to this user.
pub(crate) async fn list(s3: S3, root: Path) -> Result<Vec<Upload>> {
    let mut found: Vec<Upload> = Vec::new();
    let (mut key, mut id) = (String::new(), String::new());
    loop {
        let mut query = vec![("uploads", String::new()), ("prefix", root.to_string())];
        if !key.is_empty() {
            query.extend([("key-marker", key.clone()), ("upload-id-marker", id.clone())]);
        }
        let request = SignedRequest {
            method: Method::GET,
            path: &Path::default(),
            query,
            headers: &[],
            body: Bytes::new(),
        };
        let answer = s3.send(request).await?;
        if !answer.status.is_success() {
            return Ok(found);
        }
        let page = parse(&answer.body)?;
        found.extend(page.uploads.into_iter().filter(|upload| upload.belongs_to(&root)));
        let next = (page.next_key_marker, page.next_upload_id_marker);
        // Stop if the server returns the same page again.
        if !page.is_truncated || next == (key, id) || found.len() > MOST_MARKED {
            return Ok(found);
        }
        (key, id) = next;
    }
}

fn parse(bytes: &[u8]) -> Result<Page> {
    quick_xml::de::from_reader(bytes).map_err(signed::failed)
}

/// Removes uploads and their parts.
pub(crate) async fn remove(s3: S3, uploads: Vec<Upload>) -> Result<()> {
    for upload in uploads {
        let aborted = s3.client.abort_multipart(&Path::parse(&upload.key)?, &upload.upload_id).await;
        match aborted {
            // It ended meanwhile.
            Err(Failure::NotFound { .. }) => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_parsed() {
        let page = parse(
            br#"<?xml version="1.0" encoding="UTF-8"?>
            <ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
              <Bucket>b</Bucket><KeyMarker/><Prefix>a</Prefix><MaxUploads>2</MaxUploads>
              <IsTruncated>true</IsTruncated><NextKeyMarker>a&amp;b/c</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>
              <Upload><Key>a</Key><UploadId>1</UploadId><Initiator><ID>x</ID></Initiator><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>
              <Upload><Key>a&amp;b/c</Key><UploadId>2</UploadId></Upload>
            </ListMultipartUploadsResult>"#,
        )
        .unwrap();
        assert!(page.is_truncated);
        assert_eq!((page.next_key_marker.as_str(), page.next_upload_id_marker.as_str()), ("a&b/c", "2"));
        let uploads: Vec<_> = page.uploads.iter().map(Upload::describe).collect();
        assert_eq!(uploads, ["a (upload 1)", "a&b/c (upload 2)"]);
        let none = parse(
            b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>",
        );
        assert!(none.unwrap().uploads.is_empty());
        assert!(parse(b"<html").is_err());
    }

    #[test]
    fn uploads_of_similar_names_are_not_those_of_an_object() {
        let belongs = |key: &str| {
            Upload { key: key.to_owned(), upload_id: String::new() }.belongs_to(&Path::from("a/x.tet"))
        };
        assert!(belongs("a/x.tet") && belongs("a/x.tet/b") && belongs("a/x.tet.tesseral-1.staged"));
        assert!(!belongs("a/x.tets") && !belongs("a/x.tet.copy") && !belongs("a"));
    }
}
