// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verifying client: plays (RTSP, HLS) or downloads an asset and counts every fault.
//!
//! The demo, the tests and operators ask the same question: did every packet arrive once, in order
//! and in time? [`play`] sends a player's requests and reports (DESCRIBE, SETUP, PLAY, receiver
//! reports, TEARDOWN) and keeps statistics instead of showing pictures. [`download`] is a verifying
//! GET; [`load::load`] plays many sessions at once, and [`hls`] plays HLS presentations. The
//! recorder uses [`ClientSession`] and [`rtp_receiver`].
//!
//! A packet goes from the kernel to `packet_intake` in a separate thread (`receive_thread` for a
//! stream of a play, `camera_thread` for all tracks of a camera), through the only receiver of RTP
//! ([`rtp_receiver`]) into the statistics (`stream_stats`) and, where a file is written, in order
//! to `file_writer` (another thread). Packets of a track go to its depayloader (`track_receiver`),
//! and access units through `track_queue` and `track_muxer` into the file. `rtsp_connection`
//! exchanges RTSP and answers challenges (`login`), `rtcp_reporter` RTCP; `play_session` runs the
//! play, and `verdict` holds the result.
//!
//! Sources: RFC 2326, RFC 3550, RFC 2250, RFC 8216, RFC 9112.
//! Does not decode, or use proxies or cookies; TLS is for RTSP alone.

#![forbid(unsafe_code)]

mod camera_thread;
mod channel_rtcp;
mod chosen_stream;
mod client_session;
mod connect;
mod control_stream;
mod control_writer;
mod decode_order;
mod demultiplexer;
mod described_tracks;
mod download;
mod error;
mod file_part;
mod file_writer;
mod frame_reader;
pub mod hls;
mod http_head;
mod http_url;
mod lateness;
pub mod load;
mod login;
mod media_names;
mod multicast;
mod output_end;
mod packet_intake;
mod play;
mod play_consumer;
mod play_session;
mod play_verdict;
mod plural;
mod random;
mod read_pace;
mod receive_thread;
mod recorded_media;
mod refused_senders;
mod rtcp_reporter;
pub mod rtp_receiver;
mod rtsp_connection;
mod rtsp_refusal;
mod sender_clock;
mod socket_pace;
mod socket_pair;
mod stop;
mod stream_setup;
mod stream_stats;
mod tls;
mod track_file;
mod track_muxer;
mod track_packetizer;
mod track_queue;
mod track_receiver;
mod track_stream;
mod transport;
mod tunnel;
mod unasked_input;
mod unit_clock;
mod verdict;

#[cfg(test)]
mod login_trials;
#[cfg(test)]
mod play_trials;
#[cfg(test)]
mod scripted_login;
#[cfg(test)]
mod scripted_server;
#[cfg(test)]
mod scripted_tls;
#[cfg(test)]
mod scripted_tunnel;
#[cfg(test)]
mod tls_trials;
#[cfg(test)]
mod transport_trials;
#[cfg(test)]
mod trial_sockets;

use wire::rtsp::client::Client;

pub use camera_thread::{CameraThread, CameraTurn};
pub use channel_rtcp::ChannelRtcp;
pub use client_session::{ClientSession, GrantedSetup};
pub use described_tracks::{DescribedOptions, DescribedTracks, TrackSockets};
pub use download::{Download, DownloadProgress, DownloadTarget, download};
pub use error::{ClientSetting, Error};
pub use file_part::FilePart;
pub use frame_reader::{FrameBatch, FrameQueue};
pub use login::{
    ChallengeFault, ClientLogin, InvalidUserinfo, LOGIN_WAIT, LoginRefusal, RtspServer,
    UserCredentials, Userinfo, rtsp_server, split_userinfo,
};
pub use play::{Play, PlayProgress, play};
pub use plural::counted;
pub use random::{random_cname, random_u32};
pub use recorded_media::RecordedMedia;
pub use refused_senders::{RefusalReason, RefusedCounts, RefusedSender, RefusedSenders};
pub use sender_clock::SenderClock;
pub use tls::{CertificateFingerprint, ServerTrust, TlsFault, TrustFault};
pub use track_muxer::{MuxCounts, TrackMuxer, TrackOrigin};
pub use track_packetizer::TrackContainer;
pub use track_queue::{Ended, TrackEvent, TrackQueue};
pub use track_stream::TrackCounts;
pub use transport::{StreamTransport, TransportChoice, check_transport};
pub use verdict::{
    AnnouncedStream, LatenessMs, MissingPackets, PlayEnd, RecordedFile, TrackVerdict, Verdict,
};

/// Protocol of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `rtsp:` and `rtsps:`: a stream, for [`play`].
    Rtsp,
    /// `http:`: a file, for [`download`].
    Http,
}

impl Scheme {
    /// Parses the scheme of a URL.
    ///
    /// # Errors
    /// Caller: the scheme is neither; the error has the URL to write.
    pub fn of(url: &str) -> Result<Scheme, Error> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        if has_userinfo(url) {
            return Err(wrong_url(url));
        }
        if ["rtsp", "rtsps"].iter().any(|rtsp| scheme.eq_ignore_ascii_case(rtsp)) {
            Ok(Scheme::Rtsp)
        } else if scheme.eq_ignore_ascii_case("http") {
            Ok(Scheme::Http)
        } else {
            Err(wrong_url(url))
        }
    }
}

/// Returns true for a URL that contains a user name, and perhaps a password, which must not appear
/// in a log: [`split_userinfo`] takes them off.
pub fn has_userinfo(url: &str) -> bool {
    let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    behind_scheme.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// Returns a URL for messages, without a possible user name or password. Any text is accepted.
pub fn without_userinfo(url: &str) -> String {
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        None => ("", url),
    };
    match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}…@{rest}"),
        None => url.to_owned(),
    }
}

fn wrong_url(url: &str) -> Error {
    let cure = match has_userinfo(url) {
        true if !url.contains("://") => "write rtsp://, rtsps:// or http:// in front of it",
        true => {
            "leave user and password out: they are for RTSP alone; over HTTP a signed address \
             needs none (pagewire sign)"
        }
        false => "write rtsp://HOST:PORT/PATH, rtsps:// over TLS, or http://HOST:PORT/PATH",
    };
    let found = one_line(&without_userinfo(url), URL_CHARS_SHOWN);
    Error::Setting { setting: ClientSetting::Url, found, cure: cure.to_owned() }
}

/// Creates the request writer for an `rtsp:` or `rtsps:` URL.
fn rtsp_client(url: &str) -> Result<Client, Error> {
    let client = Client::new(url).ok().filter(|_| !has_userinfo(url));
    client.ok_or_else(|| wrong_url(url))
}

/// Makes text of a peer fit for one line of a message.
fn one_line(text: &str, chars_max: usize) -> String {
    let mut line = String::new();
    for (n, word) in text.split(|c: char| c.is_whitespace() || c.is_control()).enumerate() {
        if n > 0 && !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().count() > chars_max {
            let kept: String = line.chars().take(chars_max).collect();
            return format!("{}…", kept.trim_end());
        }
    }
    line.trim_end().to_owned()
}

const URL_CHARS_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_apart() {
        assert_eq!(Scheme::of("rtsp://h/a.ts").unwrap(), Scheme::Rtsp);
        assert_eq!(Scheme::of("RTSP://h/a.ts").unwrap(), Scheme::Rtsp);
        assert_eq!(Scheme::of("rtsps://h/a.ts").unwrap(), Scheme::Rtsp);
        assert_eq!(Scheme::of("http://h/a.ts").unwrap(), Scheme::Http);
        for wrong in ["https://h/a", "/a.ts", "", "rtspx://h/a", "rtsp:/h"] {
            let error = Scheme::of(wrong).unwrap_err();
            assert!(error.is_caller(), "{wrong}");
            assert!(error.to_string().contains("write rtsp://HOST:PORT/PATH"), "{error}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for url in [
            "rtsp://user:secret@h:554/live",
            "http://user:secret@h/a.ts",
            "rtsp://user:sec/ret@h/live",
            "user:secret@h/live",
            "rtsp://secret@[::1]/live",
            "rtsp://user:p@secret@h/live",
        ] {
            let error = Scheme::of(url).and_then(|_| rtsp_client(url).map(drop)).unwrap_err();
            assert!(error.is_caller(), "{url}");
            let text = error.to_string();
            assert!(!["secret", "ret@", "user:"].iter().any(|word| text.contains(word)), "{text}");
            assert!(text.contains("…@"), "{text}");
        }
        let text = Scheme::of("rtsp://user:secret@h:554/live").unwrap_err().to_string();
        let cure = "leave user and password out: they are for RTSP alone; over HTTP a signed \
                    address needs none (pagewire sign)";
        assert!(text.ends_with(cure), "{text}");
        assert!(rtsp_client("rtsp://h/live@home").is_ok(), "a path may have one");
    }

    #[test]
    fn foreign_text_is_one_short_line() {
        assert_eq!(one_line("no PCR\r\n in  it\x1b[2J\n", 80), "no PCR in it [2J");
        assert_eq!(one_line("ab cdef", 4), "ab c…");
        assert_eq!(one_line("", 4), "");
    }
}
