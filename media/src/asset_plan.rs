// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plan of an asset, of either kind: one transport stream, or tracks of their own.

use crate::plan::{PacketPlan, PlanKey};
use crate::tracks::Presentation;
use crate::{PlanFault, tracks};

/// Plan of a file, created by a scan and saved by a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetPlan {
    /// The file is sent unchanged, a transport stream in one RTP stream.
    TransportStream(PacketPlan),
    /// Each track of the file is an RTP stream.
    Tracks(Presentation),
}

impl AssetPlan {
    /// The plan as bytes, valid for the file with this key only.
    pub fn encode(&self, key: &PlanKey) -> Vec<u8> {
        match self {
            AssetPlan::TransportStream(plan) => plan.encode(key),
            AssetPlan::Tracks(presentation) => presentation.encode(key),
        }
    }

    /// Decodes the plan of the file with this key, as written by [`encode`](Self::encode).
    ///
    /// # Errors
    /// The bytes are not a plan, or are that of another file.
    pub fn decode(bytes: &[u8], key: &PlanKey) -> Result<AssetPlan, PlanFault> {
        match bytes.starts_with(&tracks::MAGIC) {
            true => Presentation::decode(bytes, key).map(AssetPlan::from),
            false => PacketPlan::decode(bytes, key).map(AssetPlan::from),
        }
    }

    /// Duration of play, in ticks of 27 MHz.
    pub fn duration_ticks(&self) -> u64 {
        match self {
            AssetPlan::TransportStream(plan) => plan.duration_ticks(),
            AssetPlan::Tracks(presentation) => presentation.duration_ticks(),
        }
    }

    /// Average bitrate of the sent media, without RTP headers; at least 1.
    pub fn bits_per_second(&self) -> u64 {
        match self {
            AssetPlan::TransportStream(plan) => plan.bits_per_second(),
            AssetPlan::Tracks(presentation) => presentation.bits_per_second(),
        }
    }

    /// The packet plan, if the asset is a transport stream.
    pub fn transport_stream(&self) -> Option<&PacketPlan> {
        match self {
            AssetPlan::TransportStream(plan) => Some(plan),
            AssetPlan::Tracks(_) => None,
        }
    }
}

impl From<PacketPlan> for AssetPlan {
    fn from(plan: PacketPlan) -> AssetPlan {
        AssetPlan::TransportStream(plan)
    }
}

impl From<Presentation> for AssetPlan {
    fn from(presentation: Presentation) -> AssetPlan {
        AssetPlan::Tracks(presentation)
    }
}
