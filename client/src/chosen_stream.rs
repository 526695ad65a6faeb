// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of a description that are played or recorded.
//!
//! A transport stream is taken alone, since it holds everything; else all tracks that can be put
//! together are.
//!
//! Sources: RFC 2326 Appendix C; RFC 2250 §2.

use media::depayload::Depayloader;
use wire::mp2t::ENCODING_NAME;
use wire::rtsp::client::DescribedSession;
use wire::sdp::TrackOffer;

use super::rtsp_connection::RtspConnection;
use crate::error::Error;

/// A stream of a description.
pub(super) struct ChosenStream {
    /// URL of its SETUP.
    pub(super) url: String,
    pub(super) offer: TrackOffer,
    /// None of a transport stream.
    pub(super) depayloader: Option<Depayloader>,
}

impl ChosenStream {
    /// True for pictures in packets of their own.
    pub(super) fn has_pictures(&self) -> bool {
        self.depayloader.is_some() && self.offer.media == "video"
    }
}

/// The streams that were chosen, and why others were not.
pub(super) struct StreamChoice {
    /// One transport stream, or tracks.
    pub(super) streams: Vec<ChosenStream>,
    pub(super) left_out: Vec<String>,
    /// Formats of those that were left out, as the description names them.
    pub(super) left_out_formats: Vec<String>,
}

impl StreamChoice {
    /// Chooses among the streams of a description.
    pub(super) fn of(described: DescribedSession) -> StreamChoice {
        let DescribedSession { offer, stream_urls } = described;
        let mut all: Vec<_> = offer.tracks.into_iter().zip(stream_urls).collect();
        if let Some(at) = all.iter().position(|(offer, _)| is_transport_stream(offer)) {
            let (offer, url) = all.swap_remove(at);
            let streams = vec![ChosenStream { url, offer, depayloader: None }];
            let (left_out, left_out_formats) = Default::default();
            return StreamChoice { streams, left_out, left_out_formats };
        }
        let mut left_out_formats = offer.left_out.clone();
        let mut left_out = offer.left_out;
        let mut streams = Vec::with_capacity(all.len());
        for (offer, url) in all {
            match Depayloader::new(&offer) {
                Ok(depayloader) => {
                    streams.push(ChosenStream { url, offer, depayloader: Some(depayloader) });
                }
                Err(refusal) => {
                    left_out_formats.push(offer.format_name());
                    left_out.push(refusal.to_string());
                }
            }
        }
        StreamChoice { streams, left_out, left_out_formats }
    }

    /// True where pictures or sound are among what was left out.
    fn lacks_media(&self) -> bool {
        self.left_out.iter().any(|text| text.starts_with("video ") || text.starts_with("audio "))
    }
}

/// The streams to verify: a verdict on a part of the pictures and sound would be none.
///
/// # Errors
/// Peer: some cannot be put together, or there are none.
pub(super) fn choose_streams(
    control: &RtspConnection,
    described: DescribedSession,
) -> Result<Vec<ChosenStream>, Error> {
    let choice = StreamChoice::of(described);
    match choice.streams.is_empty() || choice.lacks_media() {
        true => Err(control.fault("DESCRIBE", choice.left_out.join("; "))),
        false => Ok(choice.streams),
    }
}

/// True for a stream of MP2T.
fn is_transport_stream(offer: &TrackOffer) -> bool {
    offer.encoding.eq_ignore_ascii_case(ENCODING_NAME)
}
