// SPDX-License-Identifier: MIT OR Apache-2.0
//! The media of a camera that are recorded, by name.
//!
//! In many places the law permits pictures of a camera and forbids its sound.
//!
//! Does not choose tracks (`chosen_stream` does).

use std::fmt;
use std::str::FromStr;

use media::TrackMedia;

/// Media that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordedMedia {
    /// All tracks, and transport streams as they are.
    #[default]
    All,
    /// Video tracks alone.
    Video,
    /// Audio tracks alone.
    Audio,
}

impl RecordedMedia {
    /// All choices.
    pub const ALL: [RecordedMedia; 3] =
        [RecordedMedia::All, RecordedMedia::Video, RecordedMedia::Audio];

    /// Its name on the command line. That of one medium is also the name of the medium in a
    /// description.
    pub fn name(self) -> &'static str {
        match self {
            RecordedMedia::All => "all",
            RecordedMedia::Video => "video",
            RecordedMedia::Audio => "audio",
        }
    }

    /// True where tracks of this medium are recorded.
    pub(crate) fn includes(self, media: TrackMedia) -> bool {
        match self {
            RecordedMedia::All => true,
            RecordedMedia::Video => media == TrackMedia::Video,
            RecordedMedia::Audio => media == TrackMedia::Audio,
        }
    }
}

impl FromStr for RecordedMedia {
    type Err = String;

    fn from_str(text: &str) -> Result<RecordedMedia, String> {
        let found = RecordedMedia::ALL.into_iter().find(|media| media.name() == text);
        found.ok_or_else(|| format!("{text}: write all, video or audio"))
    }
}

impl fmt::Display for RecordedMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_is_read_by_its_name() {
        for media in RecordedMedia::ALL {
            assert_eq!(media.name().parse(), Ok(media));
        }
        let wrong = "sound".parse::<RecordedMedia>().unwrap_err();
        assert_eq!(wrong, "sound: write all, video or audio");
    }
}
