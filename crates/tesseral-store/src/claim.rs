//! Claims: if several writers create one output in an object store, one succeeds.
//!
//! A claim is an object next to the output, named after it, that a writer creates on the condition that it does not exist and
//! removes when it is done. It also shows whether the server honors conditions: otherwise two writers would succeed.

use std::sync::Arc;

use tesseral_core::{Advice, Error, ErrorKind, Result};

use crate::store::{Overwrite, Store, StoreExt};

/// Suffix of the object that one writer of an output holds.
pub const CLAIM: &str = ".tesseral-claim";

const TEXT: &[u8] = b"a writer is creating or changing the object of this name";
const CHANGED: &[u8] = b"a writer is creating or changing the object of this name.";

/// The right to create or change an output. Dropping it gives it up.
#[derive(Debug)]
pub struct Claim(Arc<dyn Store>);

impl Claim {
    /// Takes the claim of an output. `store` is the claim's object.
    ///
    /// # Errors
    /// `InvalidRequest` if another writer holds it; `Unsupported` if the server ignores `If-None-Match`; `Io`.
    pub fn take(store: Arc<dyn Store>, output: &str) -> Result<Self> {
        let refused = |error: &Error| matches!(error.kind(), ErrorKind::InvalidRequest { .. });
        match store.put("", TEXT, Overwrite::Refuse) {
            Ok(()) => {}
            Err(error) if refused(&error) => {
                let what = format!("{output} is being written by another process");
                let hint = format!(
                    "if no process is running, {} is a leftover of an interrupted writer: remove it",
                    store.location()
                );
                return Err(Error::invalid(what).hint(hint));
            }
            Err(error) => return Err(error),
        }
        let claim = Self(store);
        match claim.0.put("", TEXT, Overwrite::Refuse) {
            Err(error) if refused(&error) => Ok(claim),
            Err(error) => Err(error),
            Ok(()) => {
                let what =
                    format!("creating {output} without overwriting: the server ignores conditional puts");
                Err(Error::unsupported(what).hint(Advice::Overwrite))
            }
        }
    }

    /// Checks that the server replaces an object only in the version that was read. `again` is a new store of the claim's object.
    ///
    /// # Errors
    /// `Unsupported` if the server ignores `If-Match`; `Io`.
    pub fn check_updates(&self, again: &dyn Store, output: &str) -> Result<()> {
        again.len("")?;
        self.0.put("", CHANGED, Overwrite::Replace)?;
        match again.put("", TEXT, Overwrite::Replace) {
            Err(error) if matches!(error.kind(), ErrorKind::Changed { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let what = format!("changing {output}: the server ignores conditional puts");
                Err(Error::unsupported(what)
                    .hint("change a copy on this machine, and replace the object by it"))
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A claim that cannot be removed is named by the next writer.
        let _ = self.0.remove("");
    }
}
