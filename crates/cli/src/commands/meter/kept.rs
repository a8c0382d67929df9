//! `--keep-spans`: where whole traces go, and how many.

use super::MeterArgs;
use crate::values::Size;
use anyhow::{Context, bail};
use spangap_meter::serve::clock::Clock;
use spangap_meter::spool::{Spool, SpoolSettings};
use std::sync::Arc;

/// Requests on their way to the disk, in bytes: what a meter takes in a tenth of a second at a million spans a second.
const KEEP_QUEUE_BYTES: u64 = 64 << 20;
/// Less has no room for a few requests of the largest size.
const LEAST_KEPT_BYTES: u64 = 1 << 20;

impl MeterArgs {
    /// Opens the folder of whole traces, if they are wanted.
    pub(super) fn spool(&self) -> anyhow::Result<Option<Arc<Spool>>> {
        let Some(keep) = self.keep_spans else {
            let without =
                [("--keep-bytes", self.keep_bytes.is_some()), ("--keep-dir", self.keep_dir.is_some())];
            return match without.into_iter().find(|(_, given)| *given) {
                // It was the name of another option once.
                Some((option, _)) => bail!(
                    "{option} says how whole traces are kept: expected --keep-spans DURATION as well (memory for waiting \
                     whole spans is --whole-bytes)"
                ),
                None => Ok(None),
            };
        };
        let folder = self.keep_dir.clone().or_else(|| Some(self.data.as_ref()?.join("spans")));
        let folder = folder.context("--keep-spans needs a folder: expected --keep-dir or --data")?;
        let settings = SpoolSettings {
            folder,
            keep_ms: keep.ns() / 1_000_000,
            max_bytes: self.keep_bytes.map_or(50 << 30, Size::bytes),
            queue_bytes: KEEP_QUEUE_BYTES,
        };
        if settings.keep_ms == 0 || settings.max_bytes < LEAST_KEPT_BYTES {
            bail!(
                "--keep-spans needs at least 1ms, and --keep-bytes at least {} MiB",
                LEAST_KEPT_BYTES >> 20
            );
        }
        let clock = Clock::start();
        Ok(Some(Arc::new(Spool::open(settings, move || clock.unix_ms())?)))
    }
}
