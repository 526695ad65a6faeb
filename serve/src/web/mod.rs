// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP Live Streaming and MPEG-DASH of the files in the library, made for each request.
//!
//! A file `films/a.mp4` is played from `films/a.mp4/master.m3u8` and `films/a.mp4/manifest.mpd`; a
//! folder of renditions of one title from `film/master.m3u8` ([`title`]). All addresses in these
//! lie below `films/a.mp4/~IDENTITY/`, where the identity is that of the file's content
//! ([`address`]): when the file is replaced, its old addresses are gone. No segment is kept: each
//! is some bytes, made from the file's segment plan ([`web_asset`]), and ranges of the file. A
//! transport stream is sent as it is, its segments byte ranges of the file. Where a player needs
//! fragments of MP4 (DASH, HEVC, several sounds), the samples are extracted from its packets and
//! kept for a while ([`segment_copies`]). Subtitles come from text tracks and from side-car files
//! beside the film, as WebVTT ([`subtitles`]), and from tracks of TTML, whose documents are sent as
//! they are ([`ttml_tracks`]). Segments may be enciphered ([`protection`]). A recording is played
//! while it is written ([`live`], [`live_dash`]), a channel while it is sent ([`channel_answers`]).
//!
//! Costs, once a plan is made: a look-up of the file and of the plan for each request; for a
//! segment a copy of its boxes (made once, 10 ns a sample: [`made_parts`]) and the calls of a
//! download ([`crate::http`]), for a playlist a copy of its text.
//!
//! Sources: RFC 8216 (HLS), ISO/IEC 23009-1 (DASH), ISO/IEC 23000-19 (CMAF).
//! Does not send ([`crate::http`]) or cut ([`media::cmaf`], [`media::segments`]).

pub(crate) mod address;
mod answers;
mod carry;
mod channel_answers;
mod channel_snapshot;
#[cfg(test)]
mod channel_trials;
pub(crate) mod clear_key;
mod fair_turns;
mod item_parts;
mod item_response;
mod live;
mod live_dash;
mod live_manifest;
mod live_media;
mod live_playlist;
mod live_reload;
mod live_state;
mod live_tracks;
mod made_parts;
mod manifest;
mod master;
mod media_playlist;
mod mpd_elements;
mod names;
mod pictures;
#[cfg(test)]
mod playlist_trials;
pub(crate) mod protection;
mod recorded_file;
mod recording_snapshot;
mod segment_copies;
mod shown_tracks;
mod side_cars;
mod sounds;
mod stream_media;
mod subtitles;
mod text_segments;
pub(crate) mod title;
mod ts_form;
mod ttml_tracks;
mod web_asset;
mod web_assets;
mod web_media;
mod weighted_cache;

pub(crate) use answers::{AskedBy, answer, carried_file, missing, title_answer};
pub(crate) use channel_answers::{AskedChannel, ChannelMedia, channel_answer};
pub(crate) use item_response::refused;
pub(crate) use live_dash::LiveDash;
pub(crate) use live_reload::{LiveWait, awaited, may_wait};
pub(crate) use live_state::LiveState;
pub(crate) use media_playlist::TICKS_PER_US;
pub(crate) use pictures::{picture_answer, picture_kind};
pub(crate) use protection::Protection;
pub use protection::SegmentCipher;
pub(crate) use shown_tracks::ShownTracks;
pub(crate) use web_assets::{WebAssets, WebSource};
