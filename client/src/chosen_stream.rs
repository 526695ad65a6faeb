// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of a description that are played or recorded.
//!
//! A transport stream is chosen alone, since it carries every elementary stream. Without one, all
//! tracks with a depayloader are chosen. A recording may be of one medium alone: the server is then
//! asked for no track of another, and a transport stream is refused.
//!
//! Sources: RFC 2326 Appendix C; RFC 2250 §2.

use media::depayload::Depayloader;
use media::mux::{MediaWriter, WriterKind, stored_pcm};
use media::{Codec, MuxRefusal};
use wire::mp2t::ENCODING_NAME;
use wire::rtsp::client::DescribedSession;
use wire::sdp::TrackOffer;

use super::media_names::names_of;
use super::recorded_media::RecordedMedia;
use super::rtsp_connection::RtspConnection;
use crate::error::Error;

/// A stream of a description.
pub(super) struct ChosenStream {
    /// URL of its SETUP.
    pub(super) url: String,
    pub(super) offer: TrackOffer,
    /// None for a transport stream.
    pub(super) depayloader: Option<Depayloader>,
}

impl ChosenStream {
    /// Name of the track in a recording of this kind: that of the description, and the form in
    /// which PCM is stored.
    pub(super) fn recorded_name(&self, kind: WriterKind) -> String {
        let name = self.offer.format_name();
        match self.depayloader.as_ref().and_then(Depayloader::codec) {
            Some(Codec::Pcm(config)) if kind == WriterKind::FragmentedMp4 => {
                format!("{name} as PCM of {} bits", stored_pcm(*config).form.bytes() * 8)
            }
            _ => name,
        }
    }

    /// True for a video track.
    pub(super) fn has_pictures(&self) -> bool {
        self.depayloader.is_some() && self.offer.media == "video"
    }
}

/// The chosen streams, and the reasons for leaving out others.
pub(super) struct StreamChoice {
    /// One transport stream, or tracks.
    pub(super) streams: Vec<ChosenStream>,
    pub(super) left_out: Vec<String>,
    /// Formats of the streams left out, as the description names them.
    pub(super) left_out_formats: Vec<String>,
}

impl StreamChoice {
    /// Chooses among the streams of a description.
    pub(super) fn of(described: DescribedSession) -> StreamChoice {
        let DescribedSession { offer, stream_urls } = described;
        let unread = offer.left_out;
        let mut left_out: Vec<_> = unread.iter().map(ToString::to_string).collect();
        let mut all: Vec<_> = offer.tracks.into_iter().zip(stream_urls).collect();
        if let Some(at) = all.iter().position(|(offer, _)| is_transport_stream(offer)) {
            let (offer, url) = all.swap_remove(at);
            let streams = vec![ChosenStream { url, offer, depayloader: None }];
            let beside = |(offer, _): &(TrackOffer, String)| {
                format!("{}: a transport stream is taken alone", offer.format_name())
            };
            left_out.extend(all.iter().map(beside));
            return StreamChoice { streams, left_out, left_out_formats: Vec::new() };
        }
        let mut left_out_formats: Vec<_> =
            unread.into_iter().map(|section| section.format).collect();
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

    /// Chooses the streams of a description that a recording of this kind can hold: players cannot
    /// read PCM or AV1 in a transport stream, and cameras send PCM beside their video. Tracks of
    /// media other than `media` are left out.
    ///
    /// # Errors
    /// One medium alone cannot be recorded: the description has no such track, or has a transport
    /// stream. The text is the reason.
    pub(super) fn to_record(
        described: DescribedSession,
        kind: WriterKind,
        media: RecordedMedia,
    ) -> Result<StreamChoice, String> {
        let mut choice = StreamChoice::of(described);
        let (mut recorded, mut unwanted) = (Vec::with_capacity(choice.streams.len()), Vec::new());
        for stream in choice.streams {
            let name = stream.offer.format_name();
            match &stream.depayloader {
                None if media != RecordedMedia::All => return Err(WHOLE_STREAM.to_owned()),
                // The format decides: a description can name another medium.
                Some(depayloader) if !media.includes(depayloader.media()) => {
                    unwanted.push(format!("{name}: only {media} is recorded"));
                    choice.left_out_formats.push(name);
                    continue;
                }
                _ => {}
            }
            match unrecorded(&stream, kind) {
                Some(reason) => {
                    choice.left_out.push(format!("{name}: {reason}"));
                    choice.left_out_formats.push(name);
                }
                None => recorded.push(stream),
            }
        }
        choice.streams = recorded;
        if choice.streams.is_empty() && media != RecordedMedia::All {
            return Err(choice.lack_of(media));
        }
        choice.left_out.append(&mut unwanted);
        Ok(choice)
    }

    /// Reason why no track of one medium is recorded: the faults of its tracks, or the media that
    /// the description has instead.
    fn lack_of(&self, media: RecordedMedia) -> String {
        let is_wanted = |text: &&String| text.starts_with(&format!("{media} "));
        let faults: Vec<_> = self.left_out.iter().filter(is_wanted).cloned().collect();
        match faults.is_empty() {
            true => {
                let offered = names_of(&self.left_out_formats.join(", "));
                format!("no {media} track is offered, only {offered}")
            }
            false => format!("no {media} track can be recorded: {}", faults.join("; ")),
        }
    }

    /// True where video or audio is among the streams left out beside tracks.
    fn lacks_media(&self) -> bool {
        let are_tracks = self.streams.iter().all(|stream| stream.depayloader.is_some());
        let is_media = |text: &String| text.starts_with("video ") || text.starts_with("audio ");
        are_tracks && self.left_out.iter().any(is_media)
    }
}

/// Reason to leave a stream out of a recording.
fn unrecorded(stream: &ChosenStream, kind: WriterKind) -> Option<String> {
    let depayloader = stream.depayloader.as_ref()?;
    if kind != WriterKind::TransportStream {
        let codec = depayloader.codec()?;
        return MediaWriter::new(kind, std::slice::from_ref(codec)).err().map(
            |refusal| match refusal {
                MuxRefusal::Codec { reason, .. } => reason.to_owned(),
                other => other.to_string(),
            },
        );
    }
    // The codec of AV1 is unknown before its first sequence header.
    let is_av1 = stream.offer.encoding.eq_ignore_ascii_case("AV1");
    let reason = match depayloader.codec() {
        Some(Codec::Pcm(_)) => "a transport stream has no place for PCM",
        _ if is_av1 => "players do not read AV1 in a transport stream",
        _ => return None,
    };
    Some(format!("{reason}; name the recording .mp4 to keep it"))
}

/// Chooses the streams to verify; returns the streams left out as well. Fails where video or audio
/// would be left out beside tracks: a verdict on some of the media would mislead.
///
/// # Errors
/// Peer: some streams cannot be depacketized, or the description has none.
pub(super) fn choose_streams(
    control: &RtspConnection,
    described: DescribedSession,
) -> Result<StreamChoice, Error> {
    let choice = StreamChoice::of(described);
    match choice.streams.is_empty() || choice.lacks_media() {
        true => Err(control.fault("DESCRIBE", choice.left_out.join("; "))),
        false => Ok(choice),
    }
}

/// True for a stream of MP2T.
fn is_transport_stream(offer: &TrackOffer) -> bool {
    offer.encoding.eq_ignore_ascii_case(ENCODING_NAME)
}

/// Reason to refuse a transport stream where one medium alone is recorded.
const WHOLE_STREAM: &str = "it sends a transport stream, which is recorded as it is, with all that \
                            is in it: leave --tracks out";

#[cfg(test)]
mod tests {
    use super::*;

    /// A description with these media sections.
    fn described(sections: &str) -> DescribedSession {
        let text = format!("v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n{sections}");
        let offer = wire::sdp::parse_tracks(text.as_bytes()).expect("a description");
        let stream_urls = vec![String::new(); offer.tracks.len()];
        DescribedSession { offer, stream_urls }
    }

    /// The streams of a camera as its description offers them.
    fn camera() -> DescribedSession {
        described(
            "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
             m=audio 0 RTP/AVP 8\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 L16/48000/2\r\n\
             m=video 0 RTP/AVP 98\r\na=rtpmap:98 AV1/90000\r\n",
        )
    }

    #[test]
    fn what_lies_beside_a_transport_stream_is_named() {
        let sections = "m=application 0 RTP/AVP 107\r\na=rtpmap:107 vnd.onvif.metadata/90000\r\n\
             m=video 0 RTP/AVP 33\r\nm=video 0 RTP/SAVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let choice = StreamChoice::of(described(sections));
        assert_eq!(choice.streams.len(), 1);
        let beside = [
            "video H264/90000 (RTP/SAVP): RTP/AVP and RTP/AVPF are read, and no other protocol",
            "application vnd.onvif.metadata/90000: a transport stream is taken alone",
        ];
        assert_eq!(choice.left_out, beside);
        assert!(!choice.lacks_media(), "the transport stream is a stream by itself");
    }

    /// The choice of these media for MP4.
    fn in_mp4(described: DescribedSession, media: RecordedMedia) -> Result<StreamChoice, String> {
        StreamChoice::to_record(described, WriterKind::FragmentedMp4, media)
    }

    #[test]
    fn tracks_of_another_medium_are_left_out_by_name() {
        let names = |choice: &StreamChoice| -> Vec<_> {
            choice.streams.iter().map(|stream| stream.offer.format_name()).collect()
        };
        let choice = in_mp4(camera(), RecordedMedia::Video).expect("it has video");
        assert_eq!(names(&choice), ["video H264/90000", "video AV1/90000"]);
        let reasons =
            ["audio PCMA/8000: only video is recorded", "audio L16/48000: only video is recorded"];
        assert_eq!(choice.left_out, reasons);
        let choice = in_mp4(camera(), RecordedMedia::Audio).expect("it has sound");
        assert_eq!(names(&choice), ["audio PCMA/8000", "audio L16/48000"]);
        assert_eq!(choice.left_out[0], "video H264/90000: only audio is recorded");
        // Sound under the name of another medium is sound.
        let misnamed = "m=application 0 RTP/AVP 8\r\nm=video 0 RTP/AVP 0\r\n\
                        m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n";
        let choice = in_mp4(described(misnamed), RecordedMedia::Video).expect("it has video");
        assert_eq!(names(&choice), ["video H264/90000"]);
    }

    #[test]
    fn a_camera_without_the_wanted_medium_is_refused_with_what_it_has() {
        let refusal = |sections: &str, media| {
            in_mp4(described(sections), media).map(|_| ()).expect_err("nothing is left")
        };
        let sound = refusal("m=audio 0 RTP/AVP 8\r\n", RecordedMedia::Video);
        assert_eq!(sound, "no video track is offered, only G.711 audio");
        let sections = "m=video 0 RTP/AVP 26\r\nm=audio 0 RTP/AVP 8\r\n";
        let jpeg = refusal(sections, RecordedMedia::Video);
        assert!(jpeg.starts_with("no video track can be recorded: video JPEG/90000: "), "{jpeg}");
        assert!(!jpeg.contains("audio PCMA"), "{jpeg}");
        let kind = WriterKind::TransportStream;
        let choice = StreamChoice::to_record(camera(), kind, RecordedMedia::Audio);
        let pcm = choice.map(|_| ()).expect_err("a transport stream has no place for PCM");
        assert!(pcm.starts_with("no audio track can be recorded: audio PCMA/8000: "), "{pcm}");
        assert!(pcm.ends_with("name the recording .mp4 to keep it"), "{pcm}");
    }

    #[test]
    fn a_transport_stream_is_refused_where_one_medium_is_recorded() {
        let sections = "m=video 0 RTP/AVP 33\r\nm=audio 0 RTP/AVP 8\r\n";
        for media in [RecordedMedia::Video, RecordedMedia::Audio] {
            let refusal = in_mp4(described(sections), media).map(|_| ()).unwrap_err();
            assert!(refusal.starts_with("it sends a transport stream"), "{refusal}");
            assert!(refusal.ends_with("leave --tracks out"), "{refusal}");
        }
        let choice = in_mp4(described(sections), RecordedMedia::All).expect("it is whole");
        assert_eq!(choice.streams.len(), 1);
    }

    #[test]
    fn sound_of_many_channels_is_left_out_of_mp4_by_name() {
        let sections = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 L24/48000/6\r\n";
        let choice = in_mp4(described(sections), RecordedMedia::All).expect("all are recorded");
        assert!(choice.streams.is_empty());
        assert!(choice.left_out[0].starts_with("audio L24/48000: "), "{:?}", choice.left_out);
    }

    #[test]
    fn pcm_and_av1_are_recorded_in_mp4_and_not_in_a_transport_stream() {
        let choice = StreamChoice::of(camera());
        assert!(choice.streams.len() == 4 && choice.left_out.is_empty());
        let to_record = |kind| {
            let choice = StreamChoice::to_record(camera(), kind, RecordedMedia::All);
            choice.expect("all are recorded")
        };
        let kind = WriterKind::FragmentedMp4;
        let choice = to_record(kind);
        assert!(choice.streams.len() == 4 && choice.left_out.is_empty());
        let names: Vec<_> = choice.streams.iter().map(|one| one.recorded_name(kind)).collect();
        assert_eq!(names[..2], ["video H264/90000", "audio PCMA/8000 as PCM of 16 bits"]);
        let choice = to_record(WriterKind::TransportStream);
        assert_eq!(choice.streams.len(), 1);
        assert_eq!(choice.streams[0].offer.encoding, "H264");
        let formats = ["audio PCMA/8000", "audio L16/48000", "video AV1/90000"];
        assert_eq!(choice.left_out_formats, formats);
        let words =
            "audio PCMA/8000: a transport stream has no place for PCM; name the recording .mp4";
        assert!(choice.left_out[0].starts_with(words), "{}", choice.left_out[0]);
    }
}
