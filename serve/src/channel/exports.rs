// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels as lists and programme guides for players: M3U, XMLTV and SDP.
//!
//! Set-top boxes and players take a list of channels (M3U) and a guide (XMLTV) whose entries they
//! match by `tvg-id`, here the channel's name. Titles and file names are hostile text: hidden
//! controls become spaces, so that no title begins a line of its own; `quick-xml` escapes XML; a
//! quote, for which M3U has no escape, becomes an apostrophe.
//!
//! Choices: the guide names files by their names without folder and extension; the filler and
//! times with nothing to play are gaps in it. A programme that runs at the beginning of the guide
//! keeps its real start. Times are local to the channel's zone with the offset of that moment.
//!
//! Cost and bounds: at most [`GUIDE_PROGRAMMES_MAX`] programmes in a guide and [`GUIDE_BYTES_MAX`]
//! of them, both divided among its channels; about 200 bytes each.
//!
//! Sources: RFC 8216 §4.1 and §4.3.2.1 (M3U, EXTINF); the attributes `tvg-id`, `tvg-name` and
//! `url-tvg` are those of common players (Kodi, TiviMate); `SOURCE@GROUP` is VLC's spelling for
//! source-specific multicast; the DTD of XMLTV (`xmltv.dtd`) for elements and times.
//! Does not answer requests.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use wire::sdp::{Broadcast, BroadcastFormat, broadcast};

use super::name_hash::name_hash;
use super::send_target::{SendFormat, SendTarget};
use super::settings::ChannelConfig;
use super::shown_text::one_line;
use super::timeline::{AirReason, OnAir, Timeline};

/// URLs of a list of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum M3uLinks {
    /// `rtsp://AUTHORITY/channel/NAME`.
    Rtsp,
    /// `rtp://@GROUP:PORT` and `udp://@GROUP:PORT` of each multicast target; RTSP for a channel
    /// without any.
    Multicast,
}

/// Most programmes of a guide.
pub const GUIDE_PROGRAMMES_MAX: usize = 20_000;

/// Most bytes of the programmes of a guide: those of long titles are fewer.
const GUIDE_BYTES_MAX: usize = 4 << 20;

/// Longest guide.
pub const GUIDE_TIME_MAX: Duration = Duration::from_secs(14 * 86_400);

/// Writes the list of channels; `guide` is the URL of their XMLTV. `authority` is host and port of
/// RTSP as clients reach the server: letters, digits and `.-_:[]` alone. None where the authority
/// or the guide's URL has characters that neither may have.
pub fn m3u(
    channels: &[ChannelConfig],
    links: M3uLinks,
    authority: &str,
    guide: Option<&str>,
) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let is_authority = !authority.is_empty() && authority.bytes().all(is_letter);
    is_authority.then_some(())?;
    let mut list = String::from("#EXTM3U");
    if let Some(guide) = guide {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
        guide.bytes().all(is_plain).then_some(())?;
        // Writing to a string has no error to report.
        let _ = write!(list, " url-tvg=\"{guide}\" x-tvg-url=\"{guide}\"");
    }
    list.push('\n');
    for channel in channels {
        let title = shown_title(channel);
        let quoted = title.replace('"', "'");
        let mut add = |url: &str| {
            let name = &channel.name;
            let _ = writeln!(list, "#EXTINF:-1 tvg-id=\"{name}\" tvg-name=\"{quoted}\",{title}");
            let _ = writeln!(list, "{url}");
        };
        let has_group = channel.targets.iter().any(SendTarget::is_multicast);
        if links == M3uLinks::Multicast && has_group {
            for target in channel.targets.iter().filter(|target| target.is_multicast()) {
                add(&multicast_url(channel, target));
            }
        } else if channel.rtsp {
            add(&format!("rtsp://{authority}/channel/{}", channel.name));
        }
    }
    Some(list)
}

/// URL by which players join a group.
fn multicast_url(channel: &ChannelConfig, target: &SendTarget) -> String {
    let source = match channel.source_of(target) {
        Some(IpAddr::V4(source)) => source.to_string(),
        Some(IpAddr::V6(source)) => format!("[{source}]"),
        None => String::new(),
    };
    target.to_string().replacen("://", &format!("://{source}@"), 1)
}

/// Writes the guide of channels from a time on, for `length` or [`GUIDE_TIME_MAX`].
pub fn xmltv(
    channels: &[(&ChannelConfig, &Timeline)],
    from: Duration,
    length: Duration,
) -> Vec<u8> {
    let until = from.saturating_add(length.min(GUIDE_TIME_MAX));
    let each = (GUIDE_PROGRAMMES_MAX / channels.len().max(1)).min(CHANNEL_PROGRAMMES_MAX);
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 1);
    let written: io::Result<()> = (|| {
        writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        writer.write_event(Event::DocType(BytesText::from_escaped("tv SYSTEM \"xmltv.dtd\"")))?;
        let root = writer.create_element("tv").with_attribute(("generator-info-name", "pagewire"));
        root.write_inner_content(|writer| {
            for (channel, _) in channels {
                write_channel(writer, channel)?;
            }
            for (channel, timeline) in channels {
                let bytes_end = writer.get_ref().len() + GUIDE_BYTES_MAX / channels.len();
                for programme in guide_of(timeline, from, until).take(each) {
                    if writer.get_ref().len() >= bytes_end {
                        break;
                    }
                    write_programme(writer, channel, timeline.time_zone(), &programme)?;
                }
            }
            Ok(())
        })?;
        writer.write_event(Event::Text(BytesText::from_escaped("\n")))
    })();
    written.expect("writing to memory");
    writer.into_inner()
}

/// The programmes that a guide lists: files of the playlist and the schedule. A filler of moments
/// cannot hold up the guide: a bounded number of programmes is looked at.
fn guide_of(
    timeline: &Timeline,
    from: Duration,
    until: Duration,
) -> impl Iterator<Item = OnAir> + '_ {
    let programmes = timeline.programmes_from(from).take(PROGRAMMES_SEEN_MAX);
    let listed = |on_air: &OnAir| matches!(on_air.reason, AirReason::Listed | AirReason::Scheduled);
    programmes.take_while(move |on_air| on_air.starts_at < until).filter(listed)
}

fn write_channel(writer: &mut Writer<Vec<u8>>, channel: &ChannelConfig) -> io::Result<()> {
    let title = shown_title(channel);
    let element = writer.create_element("channel").with_attribute(("id", channel.name.as_str()));
    element.write_inner_content(|writer| {
        let name = writer.create_element("display-name");
        name.write_text_content(BytesText::new(&title)).map(|_| ())
    })?;
    Ok(())
}

fn write_programme(
    writer: &mut Writer<Vec<u8>>,
    channel: &ChannelConfig,
    zone: &TimeZone,
    programme: &OnAir,
) -> io::Result<()> {
    let times = (xmltv_time(programme.starts_at, zone), xmltv_time(programme.ends_at, zone));
    let (Some(start), Some(stop)) = times else { return Ok(()) };
    // XMLTV counts whole seconds.
    if programme.starts_at.as_secs() == programme.ends_at.as_secs() {
        return Ok(());
    }
    let title = title_of(programme.entry.as_deref().unwrap_or_default());
    let element = writer.create_element("programme").with_attributes([
        ("start", start.as_str()),
        ("stop", stop.as_str()),
        ("channel", channel.name.as_str()),
    ]);
    element.write_inner_content(|writer| {
        writer.create_element("title").write_text_content(BytesText::new(&title)).map(|_| ())
    })?;
    Ok(())
}

/// Local time with its offset, `20260329013000 +0200`; none after the year 9999. An offset with
/// seconds, which the format lacks, becomes UTC.
fn xmltv_time(time: Duration, zone: &TimeZone) -> Option<String> {
    let moment = Timestamp::new(i64::try_from(time.as_secs()).ok()?, 0).ok()?;
    let offset_s = zone.to_offset(moment).seconds();
    let zone = if offset_s % 60 == 0 { zone.clone() } else { TimeZone::UTC };
    Some(moment.to_zoned(zone).strftime("%Y%m%d%H%M%S %z").to_string())
}

/// A file's name without folders and extension, in one line.
fn title_of(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or_default();
    let stem = match file.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => file,
    };
    let title = one_line(stem, TITLE_CHARS_MAX);
    if title.is_empty() { "-".to_owned() } else { title }
}

/// Returns the title of a channel as viewers get it: one line of bounded length.
pub(crate) fn shown_title(channel: &ChannelConfig) -> String {
    one_line(&channel.title, TITLE_CHARS_MAX)
}

/// Writes the description of one target of a channel, for SAP and for a file. `version` grows when
/// the channel's settings change.
pub fn session_description(
    channel: &ChannelConfig,
    target: &SendTarget,
    origin: IpAddr,
    version: u64,
) -> Vec<u8> {
    // The same on every server and after a restart.
    let named = format!("{}\n{target}", channel.name);
    broadcast(&Broadcast {
        name: &shown_title(channel),
        tool: concat!("pagewire ", env!("CARGO_PKG_VERSION")),
        origin,
        // Readers with signed numbers of 64 bits exist.
        id: name_hash(named.as_bytes()) >> 1,
        version,
        format: match target.format {
            SendFormat::Rtp => BroadcastFormat::Rtp,
            SendFormat::Udp => BroadcastFormat::Udp,
        },
        target: target.address,
        ttl: channel.ttl,
        source: channel.source_of(target),
        bits_per_second: channel.constant_rate_kbps.map(|rate| u64::from(rate) * 1000),
    })
}

const TITLE_CHARS_MAX: usize = 200;
/// Programmes of one channel in a guide: a week of five minutes each.
const CHANNEL_PROGRAMMES_MAX: usize = 2000;
/// Programmes of one channel that are looked at, the filler included.
const PROGRAMMES_SEEN_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
