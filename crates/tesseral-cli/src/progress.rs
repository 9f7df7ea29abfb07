//! A progress bar on standard error: only on a terminal, and only after half a second.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tesseral::Progress;
use tesseral_store::Traffic;

/// Time before the bar appears.
const DELAY: Duration = Duration::from_millis(500);

/// A progress bar that can be invisible.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    started: Instant,
    bar: Option<Arc<Mutex<Option<ProgressBar>>>>,
}

impl Meter {
    /// Creates a meter; invisible if standard error is not a terminal.
    pub(crate) fn new(visible: bool) -> Self {
        let bar = (visible && std::io::stderr().is_terminal()).then(Arc::default);
        Self { started: Instant::now(), bar }
    }

    /// Returns whether the meter can become visible.
    pub(crate) fn is_visible(&self) -> bool {
        self.bar.is_some()
    }

    /// Sets the progress.
    pub(crate) fn set(&self, progress: Progress) {
        let Some(bar) = &self.bar else { return };
        if self.started.elapsed() < DELAY {
            return;
        }
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = bar.get_or_insert_with(|| {
            let bar =
                ProgressBar::with_draw_target(Some(progress.total), ProgressDrawTarget::stderr_with_hz(10));
            let style =
                ProgressStyle::with_template("{bar:40.cyan} {percent:>3}% {elapsed} (left {eta}){msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        let Traffic { requests, bytes, sent, .. } = Traffic::of_process();
        if requests > 0 {
            bar.set_message(format!(", {} in {requests} requests", ByteSize(bytes.saturating_add(sent))));
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        let Some(bar) = &self.bar else { return };
        if let Some(bar) = bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Dropping the last owner removes the bar.
        if self.bar.as_ref().is_some_and(|bar| Arc::strong_count(bar) == 1) {
            self.finish();
        }
    }
}
