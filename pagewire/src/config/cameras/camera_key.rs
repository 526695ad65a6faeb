// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of a camera in the file of `pagewire receive --config FILE`, and the form of a fault of
//! one of them.
//!
//! Does not read values ([`super::camera_settings`] does).

/// Setting of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CameraKey {
    Url,
    Sdp,
    Folder,
    Form,
    Transport,
    Tracks,
    Credentials,
    AllowBasic,
    Ca,
    Fingerprint,
    RotateAtMinutes,
    RotateSeconds,
    RotateBytes,
    TimeZone,
    KeepDays,
    KeepGb,
    KeepFreeGb,
    OnFile,
}

impl CameraKey {
    /// All keys, in the order of the documentation.
    pub(super) const ALL: &[CameraKey] = &[
        CameraKey::Url,
        CameraKey::Sdp,
        CameraKey::Folder,
        CameraKey::Form,
        CameraKey::Transport,
        CameraKey::Tracks,
        CameraKey::Credentials,
        CameraKey::AllowBasic,
        CameraKey::Ca,
        CameraKey::Fingerprint,
        CameraKey::RotateAtMinutes,
        CameraKey::RotateSeconds,
        CameraKey::RotateBytes,
        CameraKey::TimeZone,
        CameraKey::KeepDays,
        CameraKey::KeepGb,
        CameraKey::KeepFreeGb,
        CameraKey::OnFile,
    ];

    /// Returns the key with this name.
    pub(super) fn named(name: &str) -> Option<CameraKey> {
        CameraKey::ALL.iter().find(|key| key.name() == name).copied()
    }

    /// Name in the file.
    pub(super) fn name(self) -> &'static str {
        match self {
            CameraKey::Url => "url",
            CameraKey::Sdp => "sdp",
            CameraKey::Folder => "folder",
            CameraKey::Form => "form",
            CameraKey::Transport => "transport",
            CameraKey::Tracks => "tracks",
            CameraKey::Credentials => "credentials",
            CameraKey::AllowBasic => "allow_basic",
            CameraKey::Ca => "ca",
            CameraKey::Fingerprint => "fingerprint",
            CameraKey::RotateAtMinutes => "rotate_at_minutes",
            CameraKey::RotateSeconds => "rotate_seconds",
            CameraKey::RotateBytes => "rotate_bytes",
            CameraKey::TimeZone => "time_zone",
            CameraKey::KeepDays => "keep_days",
            CameraKey::KeepGb => "keep_gb",
            CameraKey::KeepFreeGb => "keep_free_gb",
            CameraKey::OnFile => "on_file",
        }
    }

    /// True for a key that cannot stand at the top, as it describes one camera.
    pub(super) fn is_of_one_camera(self) -> bool {
        matches!(self, CameraKey::Url | CameraKey::Sdp | CameraKey::Fingerprint)
    }

    /// Returns the setting in messages; `table` is `camera.NAME`, or empty for the top.
    pub(super) fn shown(self, table: &str) -> String {
        match table {
            "" => self.name().to_owned(),
            table => format!("{table}: {}", self.name()),
        }
    }

    /// Returns the text of a fault of this setting.
    pub(super) fn fault(self, table: &str, fault: &str) -> String {
        format!("{}: {fault}", self.shown(table))
    }
}
