// SPDX-License-Identifier: MIT OR Apache-2.0
//! Playing a stream to check it: what can be asked for, and the way up to a session.
//!
//! DESCRIBE and SETUP are here; what happens from PLAY to TEARDOWN is in `session`.
//!
//! Sources: RFC 2326 §10.2, §10.4, C.1 (description).
//! Does not do: seek or change the range once it plays.

use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use wire::rtsp::{NptRange, NptStart};

use super::file_writer::FileWriter;
use super::play_session::{PlaySession, ReceiverTasks};
use super::receive_thread::{AnnouncedSender, ReceiveThread};
use super::rtcp_reporter::{RtcpReporter, report_target};
use super::rtsp_connection::RtspConnection;
use super::socket_pair::SocketPair;
use super::verdict::Verdict;
use crate::error::{ClientSetting, Error};

/// A future that ends a play when it is ready.
pub(super) type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What to play, and how.
#[non_exhaustive]
pub struct Play {
    /// `rtsp://HOST:PORT/PATH`.
    pub url: String,
    /// Write the transport stream to this file; one that is there is replaced.
    pub output: Option<PathBuf>,
    /// Where to start, in normal play time; at the beginning if not said.
    pub start: Option<Duration>,
    /// How much to play; to the end if not said. The server is asked for that range, and left when
    /// it goes on all the same.
    pub length: Option<Duration>,
    /// After so much play time ask for PAUSE, wait so long, and ask for PLAY again.
    pub pause: Option<(Duration, Duration)>,
    /// Ends the play when it is ready: Ctrl-C, say.
    pub stop: Option<Stop>,
}

impl Play {
    /// All of the asset at `url`, and no file.
    pub fn new(url: impl Into<String>) -> Play {
        let url = url.into();
        Play { url, output: None, start: None, length: None, pause: None, stop: None }
    }
}

/// How a play is going.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PlayProgress {
    /// Packets that came.
    pub packets: u64,
    /// Their payload, in bytes.
    pub payload_bytes: u64,
    /// Packets known to be missing by now; reordered ones may still come.
    pub lost: u64,
    /// Media that came.
    pub media: Duration,
    /// Media that is to come in all, if the server said.
    pub media_total: Option<Duration>,
    /// Since the answer to PLAY.
    pub wall: Duration,
    /// How late the last packet was, against the earliest so far.
    pub lateness: Duration,
    /// Whether it is paused.
    pub is_paused: bool,
}

/// Plays a stream and says what was wrong with it. `progress` is called four times a second.
///
/// # Errors What keeps a play from beginning, and a file that cannot be written. What goes wrong
/// once packets have come is in the verdict. Dropping the future ends everything at once, without
/// TEARDOWN.
pub async fn play(
    mut options: Play,
    progress: impl FnMut(&PlayProgress),
) -> Result<Verdict, Error> {
    let range = range(&options)?;
    let mut stop = options.stop.take().unwrap_or_else(|| Box::pin(pending()));
    let (session, equipment) = tokio::select! {
        prepared = prepare(options) => prepared?,
        () = &mut stop => return Err(Error::Peer {
            peer: "play".to_owned(),
            found: "stopped before the stream began".to_owned(),
        }),
    };
    session.play_to_end(range, equipment, stop, progress).await
}

/// DESCRIBE and SETUP.
async fn prepare(options: Play) -> Result<(PlaySession, ReceiverTasks), Error> {
    let mut control = RtspConnection::connect(&options.url).await?;
    let described = control.describe().await?;
    let SocketPair { rtp, rtcp, ports, buffer_bytes } = SocketPair::bind(control.local)?;
    let reply = control.ask("SETUP", |client| client.setup(ports)).await?;
    let set_up = control.client.set_up(&reply);
    let set_up = set_up.map_err(|malformed| control.fault("SETUP", malformed))?;
    let said = set_up.source.as_deref().and_then(|source| source.parse::<IpAddr>().ok());
    let host = said.unwrap_or(control.remote);
    // Not before: a server that refuses must not cost a file that is there.
    let output = options.output.as_deref().map(FileWriter::create).transpose()?;
    let payload_type = described.offer.payload_type;
    let receiving = ReceiveThread::start(
        rtp,
        AnnouncedSender { host, ssrc: set_up.ssrc, payload_type },
        output,
    )?;
    let to = report_target(&set_up, host, control.remote);
    let reporter = RtcpReporter::start(rtcp, host, to, receiving.shared())?;
    let equipment = ReceiverTasks { receiving, reporter, rtp_port: ports.rtp, buffer_bytes };
    Ok((PlaySession::new(options, control, &set_up), equipment))
}

/// The range to ask for, after a look at the options.
fn range(options: &Play) -> Result<NptRange, Error> {
    let wrong = |setting, found: Duration, cure: &str| Error::Setting {
        setting,
        found: format!("{} s", found.as_secs_f64()),
        cure: cure.to_owned(),
    };
    if let Some(length) = options.length.filter(|length| *length < LENGTH_MIN) {
        return Err(wrong(ClientSetting::Length, length, "write a millisecond or more"));
    }
    if let Some((_, rest)) = options.pause.filter(|(_, rest)| *rest < LENGTH_MIN) {
        return Err(wrong(
            ClientSetting::Pause,
            rest,
            "write how long to pause, a millisecond or more",
        ));
    }
    let start = options.start.unwrap_or_default();
    let end = options.length.map(|length| start.saturating_add(length));
    Ok(NptRange { start: NptStart::At(start), end })
}

/// Normal play time is written in milliseconds; less would be nothing.
const LENGTH_MIN: Duration = Duration::from_millis(1);
