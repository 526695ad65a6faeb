// SPDX-License-Identifier: MIT OR Apache-2.0
//! The elementary streams of a transport stream, as an asset with tracks.
//!
//! Few clients use them, so they are searched for when a client first requests them: by a job of
//! the scanning threads like any other, which reads the file once more. The result is kept in the
//! cache beside the plan. All sessions share one asset, which holds a reference to that of the
//! transport stream.
//!
//! Sources: `media::ElementaryDemuxer`.
//! Does not serve those of recordings and channels, whose ends are unknown.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::AssetPlan;
use media::store::asset_key;

use super::scans::OpenedFile;
use super::{Known, Library, NoAsset, Wanted, blocking, verdicts};
use crate::library::asset::{Asset, LibraryAsset};

impl Library {
    /// Returns the elementary streams of a transport stream, requested by `peer`; waits like
    /// [`Library::asset`].
    pub(crate) async fn elementary(
        self: &Arc<Self>,
        stream: &Arc<Asset>,
        peer: IpAddr,
        hung_up: impl Future<Output = ()>,
    ) -> Result<LibraryAsset, NoAsset> {
        if stream.continues() {
            return Err(NoAsset::Refused(CONTINUES.to_owned()));
        }
        self.awaited(Wanted::Elementary(stream), peer, hung_up).await
    }

    /// Looks up the elementary streams without a scan.
    pub(super) async fn known_elementary(
        self: &Arc<Self>,
        stream: &Arc<Asset>,
    ) -> Result<Known, NoAsset> {
        if let Some(asset) = stream.elementary() {
            return Ok(Known::Asset(LibraryAsset::Tracks(asset)));
        }
        let (library, owned) = (self.clone(), stream.clone());
        let opened = blocking(move || {
            let opened = library.open_file(&owned.name)?;
            match opened.key == owned.key {
                true => Ok(OpenedFile { elementary: Some(owned), ..opened }),
                false => Err(NoAsset::CHANGING),
            }
        });
        let opened = opened.await?;
        let door = self.door(&opened.name);
        let _alone = door.lock().await;
        let library = self.clone();
        blocking(move || {
            if let Some(asset) = library.planned(&opened) {
                library.keep_recent(&asset);
                return Ok(Known::Asset(asset));
            }
            let verdicts = library.elementary_verdicts.lock();
            match verdicts.scan_refusal(opened.id, &opened.key, Instant::now()) {
                Some(reason) => Err(reason),
                None => Ok(Known::Unplanned(opened)),
            }
        })
        .await
    }

    /// Returns the elementary streams of this transport stream if they are in use or in the cache.
    pub(super) fn planned_elementary(&self, stream: &Arc<Asset>) -> Option<LibraryAsset> {
        let cached = || Some(stream.with_elementary(self.cache.elementary(&stream.key)?));
        stream.elementary().or_else(cached).map(LibraryAsset::Tracks)
    }

    /// Stores the result of a scan for the elementary streams.
    pub(super) fn conclude_elementary(
        &self,
        opened: &OpenedFile,
        stream: &Arc<Asset>,
        found: Result<AssetPlan, NoAsset>,
        elapsed: Duration,
    ) -> Result<LibraryAsset, NoAsset> {
        let path = self.folder.path_of(&opened.name);
        let found = found.and_then(|plan| match (plan, asset_key(&path, &opened.file)) {
            (AssetPlan::Tracks(presentation), Ok(key)) if key == opened.key => Ok(presentation),
            _ => Err(NoAsset::CHANGING),
        });
        if let Ok(presentation) = &found {
            self.cache.keep_elementary(&opened.key, &presentation.encode(&opened.key));
        }
        let limit = verdicts::limit(self.entries.read().len());
        let pause = {
            let mut verdicts = self.elementary_verdicts.lock();
            verdicts.note((opened.id, &opened.key), &found, elapsed, (Instant::now(), limit))
        };
        match found {
            Ok(presentation) => {
                let asset = LibraryAsset::Tracks(stream.with_elementary(presentation));
                self.keep_recent(&asset);
                Ok(asset)
            }
            Err(NoAsset::Changing { .. }) => Err(NoAsset::Changing { again_in: pause }),
            Err(error) => {
                tracing::info!("{}: no elementary streams: {error}", opened.name);
                Err(error)
            }
        }
    }
}

/// Reason for files without an end.
const CONTINUES: &str = "transport stream that is still written: its elementary streams are sent \
                         when it is whole; play the transport stream";
