// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a file cannot be streamed, and why a stored plan is not used.
//!
//! Neither is a fault of the program. A [`Refusal`] concerns a media file: it is shown in the index
//! and in RTSP's answer 415, so it names the finding and a remedy. A [`PlanFault`] concerns a
//! cached plan; the remedy is always to create the plan again.

use crate::tracks::SampleFault;

/// Reason why a file cannot be streamed. It can still be downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is nothing in the file.
    #[error("empty file: 0 bytes")]
    Empty,
    /// The file's content has no supported format.
    #[error(
        "unknown format: not MP4, Matroska, MPEG audio, ADTS, WAV or MPEG transport stream (its \
         first bytes begin none of them, and no row of sync bytes 0x47 at a distance of 188 or 192 \
         bytes is in the first {searched_bytes} bytes); look what it is (ffprobe FILE)"
    )]
    UnknownFormat {
        /// Bytes searched for sync bytes of a transport stream.
        searched_bytes: u64,
    },
    /// The file is too small to hold two packets.
    #[error("{bytes} bytes: shorter than two packets of a transport stream, 188 bytes each")]
    TooShort {
        /// Size of the file.
        bytes: u64,
    },
    /// No regular pattern of sync bytes was found.
    #[error(
        "not an MPEG transport stream: no row of sync bytes 0x47 at a distance of 188 or 192 \
         bytes in the first {searched_bytes} bytes"
    )]
    NotTransportStream {
        /// Bytes searched.
        searched_bytes: u64,
    },
    /// The packets have a size that is not served.
    #[error(
        "transport stream of packets of {found} bytes: only 188 and 192 are streamed; remux it \
         (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    PacketBytes {
        /// Distance of the sync bytes.
        found: u64,
    },
    /// The stream has no clock for pacing.
    #[error(
        "transport stream without a clock to pace by: {pcrs} PCR found, two of one time base \
         needed (ISO/IEC 13818-1 §2.4.3.5); remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    NoClock {
        /// Program clock references found in the whole file.
        pcrs: u64,
    },
    /// There are clock references, all of one value.
    #[error(
        "transport stream with a clock that stands still: {pcrs} PCR of one value; remux it \
         (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    StoppedClock {
        /// Program clock references found.
        pcrs: u64,
    },
    /// The clock adds up to more time than a plan can hold.
    #[error("{container} longer than {limit_s} s by its own clock")]
    TooLong {
        /// Kind of file.
        container: &'static str,
        /// The limit.
        limit_s: u64,
    },
    /// Synchronisation was lost, or the clock broken, too often for a plan of bounded size.
    #[error("transport stream with more than {limit} {damage}: too damaged to stream")]
    TooDamaged {
        /// Kind of damage that was counted.
        damage: Damage,
        /// Limit of that kind.
        limit: u64,
    },
    /// Segments have packets of 188 bytes; the packets of this file have arrival times.
    #[error(
        "transport stream of packets of {stride} bytes: segments have none but 188; remux it \
         (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    ArrivalTimes {
        /// Distance of the packets.
        stride: u64,
    },
    /// Not all of the file is packets.
    #[error(
        "transport stream with {bytes} bytes that are in no packet, the first at {offset}: its \
         segments would not be the file; remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    Gaps {
        /// Count of bytes.
        bytes: u64,
        /// Offset of the first.
        offset: u64,
    },
    /// No PAT, or no PMT of a programme in it.
    #[error(
        "transport stream without PAT and PMT: a segment has to begin with them (RFC 8216 §3.2); \
         remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    NoTables,
    /// Play can start nowhere.
    #[error(
        "transport stream without a random-access point: no segment could be decoded; encode it \
         with key frames (ffmpeg -i IN -c:v libx264 -g 50 OUT.ts)"
    )]
    NoStart,
    /// A segment would be far too long.
    #[error(
        "no random-access point for {seconds} s from {from_s} s on, and segments of {target_s} s \
         are wanted; choose a longer target duration, or encode it with more key frames"
    )]
    FarStart {
        /// Start of the segment.
        from_s: u64,
        /// Duration of the segment.
        seconds: u64,
        /// Target duration.
        target_s: u64,
    },
    /// The structure of the file is broken.
    #[error(
        "{container} broken at byte {offset}: {what}; remux it (ffmpeg -i IN -map 0 -c copy \
         OUT.mp4)"
    )]
    Broken {
        /// Kind of file.
        container: &'static str,
        /// Offset of the structure.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// The file has no index: the places of its samples are unknown.
    #[error("{container} without its index (moov): {what}")]
    NoIndex {
        /// Kind of file.
        container: &'static str,
        /// The finding and the remedy.
        what: &'static str,
    },
    /// The header of a WAV file is broken, or no sound follows it.
    #[error(
        "WAV broken at byte {offset}: {what}; write it anew (ffmpeg -i IN -c:a pcm_s16le OUT.wav)"
    )]
    BrokenWav {
        /// Offset of the chunk.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// A WAV file has sound that is not sent.
    #[error("WAV of {found}: {reason}; {cure}")]
    WavSound {
        /// Form of the sound.
        found: String,
        /// The reason.
        reason: &'static str,
        /// Remedy, with a command.
        cure: &'static str,
    },
    /// A sample cannot be sent.
    #[error(
        "{container} whose sample {sample} of track {track} {fault}; remux it (ffmpeg -i IN -map 0 \
         -c copy OUT.mp4)"
    )]
    Sample {
        /// Kind of file.
        container: &'static str,
        /// Number of the track.
        track: u32,
        /// Number of the sample, from 0 on.
        sample: usize,
        /// Fault of the sample.
        fault: SampleFault,
    },
    /// No track can be sent.
    #[error("{container} without a track that can be streamed: {reasons}")]
    NoTrack {
        /// Kind of file.
        container: &'static str,
        /// The reason of each track.
        reasons: String,
    },
    /// There are too many tracks.
    #[error(
        "{container} with {found} tracks: {limit} can be streamed; leave some out (ffmpeg -map)"
    )]
    TooManyTracks {
        /// Kind of file.
        container: &'static str,
        /// Tracks found.
        found: usize,
        /// Limit.
        limit: usize,
    },
    /// The file changed while it was read.
    #[error("file changed while it was read: {fed_bytes} bytes read, {file_bytes} expected")]
    Changed {
        /// Bytes given to the scanner.
        fed_bytes: u64,
        /// Size of the file given by the caller, in bytes.
        file_bytes: u64,
    },
}

/// Reason why a demuxer ends before the end of its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemuxError {
    /// The file cannot be streamed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The file cannot be read, or has become shorter.
    #[error("reading: {0}")]
    Unreadable(#[from] std::io::Error),
}

/// Reason why a file cannot be joined to a channel's stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpliceRefusal {
    /// No programme with a map and packets was found.
    #[error(
        "joining a transport stream: no programme with a PMT in its head (ISO/IEC 13818-1 \
         §2.4.4); remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    NoMap,
    /// The requested programme is missing.
    #[error(
        "joining programme {number} of a transport stream: not in its head; the first there is \
         {first}"
    )]
    NoProgramme {
        /// Requested programme.
        number: u16,
        /// First programme of the stream.
        first: u16,
    },
    /// No clock reference was found at the entry point of the file.
    #[error(
        "joining a transport stream: no PCR on PID {pid} in {packets} packets from the place of \
         entry; remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    NoClock {
        /// PCR_PID of the programme map table; 8191 means none.
        pid: u16,
        /// Packets examined.
        packets: u64,
    },
    /// Timestamps cannot be rewritten because their packets are scrambled.
    #[error(
        "joining a transport stream: PID {pid} is scrambled, so its timestamps cannot be \
         rewritten; descramble the file first"
    )]
    Scrambled {
        /// PID of the first such stream.
        pid: u16,
    },
    /// The programme has more streams than the output has PIDs.
    #[error(
        "joining a transport stream: more than {limit} streams, or 16 of a kind, in the \
         programme; leave some out (ffmpeg -i IN -map 0:v -map 0:a -c copy OUT.ts)"
    )]
    TooManyStreams {
        /// Limit of all streams.
        limit: usize,
    },
    /// The descriptors do not fit into one section.
    #[error(
        "joining a transport stream: PMT of {bytes} bytes with its descriptors, {limit} fit in a \
         section; remux it (ffmpeg -i IN -map 0 -c copy OUT.ts)"
    )]
    MapTooLong {
        /// Bytes needed.
        bytes: usize,
        /// Limit.
        limit: usize,
    },
}

/// Setting of a splicer that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpliceSettingsFault {
    /// The rate is too low for tables and clock, or too high for a bounded queue.
    #[error("constant_rate {rate}: write {least} to {most} bits per second")]
    Rate {
        /// Requested rate.
        rate: u64,
        /// Smallest rate.
        least: u64,
        /// Largest rate.
        most: u64,
    },
    /// A name does not fit into its descriptor.
    #[error("{setting} of {bytes} bytes: write {limit} or fewer")]
    TextBytes {
        /// Name of the setting.
        setting: &'static str,
        /// Bytes found.
        bytes: usize,
        /// Limit.
        limit: usize,
    },
    /// Programme number 0 refers to the network (ISO/IEC 13818-1 §2.4.4.5).
    #[error("service_id 0: names the network, not a service; write 1 to 65535")]
    ServiceId,
}

/// Reason why a file is not written, or a unit is left out of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MuxRefusal {
    /// The name does not identify the kind of file.
    #[error("output {name}: its end names no kind of file; write .mp4, .m4v, .m4a or .ts")]
    Name {
        /// Name of the file.
        name: String,
    },
    /// There is nothing to write, or too much.
    #[error("{kind} with {found} tracks: 1 to {limit} are written; choose others")]
    TrackCount {
        /// Kind of file.
        kind: &'static str,
        /// Requested tracks.
        found: usize,
        /// Limit.
        limit: usize,
    },
    /// The kind of file does not hold the codec, or not with these parameters.
    #[error("track {track} ({codec}) in {kind}: {reason}")]
    Codec {
        /// Index of the track.
        track: usize,
        /// Name of the codec.
        codec: String,
        /// Kind of file.
        kind: &'static str,
        /// The reason, with the remedy.
        reason: &'static str,
    },
    /// There is no such track.
    #[error("track {track}: the file has {tracks}, counted from 0")]
    NoTrack {
        /// Index that was given.
        track: usize,
        /// Tracks of the file.
        tracks: usize,
    },
    /// The unit has no bytes, or nothing but padding.
    #[error("track {track}: a unit without content; leave it out")]
    Empty {
        /// Index of the track.
        track: usize,
    },
    /// The unit is larger than the limit of the writer.
    #[error("track {track}: a unit of {bytes} bytes: {limit} at most are written")]
    TooLarge {
        /// Index of the track.
        track: usize,
        /// Its size.
        bytes: usize,
        /// Limit.
        limit: usize,
    },
    /// The unit is not of its codec.
    #[error("track {track}: {what}; leave it out")]
    Malformed {
        /// Index of the track.
        track: usize,
        /// Description of the fault.
        what: &'static str,
    },
    /// Nothing of the track can be decoded yet.
    #[error(
        "track {track}: a picture before the first key frame with parameter sets; leave it out, \
         and wait for a key frame or ask for one"
    )]
    NoStart {
        /// Index of the track.
        track: usize,
    },
    /// A picture that refers to those before the first of the file.
    #[error(
        "track {track}: a picture that refers to those before the first; no decoder that begins \
         there shows it; leave it out"
    )]
    Leading {
        /// Index of the track.
        track: usize,
    },
    /// The times do not continue those before.
    #[error(
        "track {track}: a unit {by_ms} ms from the one before it: {back_ms} ms back and {ahead_ms} \
         ms ahead at most are written; begin another file"
    )]
    TimeJump {
        /// Index of the track.
        track: usize,
        /// Step in milliseconds; negative towards the past.
        by_ms: i64,
        /// Limit towards the past.
        back_ms: i64,
        /// Limit towards the future.
        ahead_ms: i64,
    },
    /// Later units are already in the file.
    #[error(
        "track {track}: a unit {by_ms} ms too late: later ones are written; hand units over in \
         the order of their times"
    )]
    Late {
        /// Index of the track.
        track: usize,
        /// Milliseconds by which it is late.
        by_ms: i64,
    },
    /// The file was begun without the track.
    #[error(
        "track {track}: nothing of it came in the first {waited_s} s, and the file was begun \
         without it; begin another file"
    )]
    LeftOut {
        /// Index of the track.
        track: usize,
        /// Seconds for which the start of the file was delayed.
        waited_s: i64,
    },
}

/// Kind of damage of which a file may have a limited number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// Places at which the clock was reset.
    ClockBreaks,
    /// Places at which the row of sync bytes was interrupted.
    SyncLosses,
    /// Different sets of PAT and PMT.
    TableSets,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ClockBreaks => "breaks of the clock",
            Self::SyncLosses => "losses of sync",
            Self::TableSets => "different tables",
        })
    }
}

/// Reason why a programme has no CODECS attribute (RFC 8216 §4.3.4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecsFault {
    /// The programme has neither pictures nor sound.
    #[error("no picture and no sound")]
    NoMedia,
    /// The type has no name here, or no header of the track was found.
    #[error("PID {pid} of stream type 0x{stream_type:02x} does not tell its profile")]
    NoProfile {
        /// Packet identifier of the track.
        pid: u16,
        /// Type of the track (ISO/IEC 13818-1 table 2-34).
        stream_type: u8,
    },
}

/// Reason why a file of subtitles, or a track of them, is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextFault {
    /// There is nothing in the file.
    #[error("empty file: 0 bytes")]
    Empty,
    /// It has too many bytes.
    #[error("{bytes} bytes of text, over {limit}")]
    TooLarge {
        /// Its bytes.
        bytes: u64,
        /// Limit.
        limit: u64,
    },
    /// It has too many cues.
    #[error("more than {limit} cues")]
    TooMany {
        /// Limit.
        limit: usize,
    },
    /// It has a byte that no text has.
    #[error("no text: a zero byte at byte {offset} of its text; save it as UTF-8")]
    Binary {
        /// Offset in the text.
        offset: u64,
    },
    /// It does not begin as WebVTT does.
    #[error("no WebVTT: its first line is not WEBVTT; name a file of SubRip .srt")]
    NoSignature,
    /// No text has times.
    #[error("no cue: no text with a line of times (00:01:02,000 --> 00:01:04,000) before it")]
    NoCue,
}

/// Reason for not using a stored plan; it must be created again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// The bytes do not begin as a plan does.
    #[error("stored plan: not a plan of pagewire")]
    Foreign,
    /// Written by another version of the program.
    #[error("stored plan: format {found}, this program writes {expected}")]
    Version {
        /// The format's number in the file.
        found: u32,
        /// The format's number of this program.
        expected: u32,
    },
    /// It describes another file, or an earlier state of this one.
    #[error("stored plan: outdated, the file's {which} differs")]
    Outdated {
        /// Part that differs.
        which: Aspect,
    },
    /// The bytes were altered, or contradict each other.
    #[error("stored plan: damaged at byte {offset}: {what}")]
    Damaged {
        /// Offset of the fault.
        offset: u64,
        /// Description of the fault.
        what: &'static str,
    },
}

/// The part of a [`PlanKey`](crate::PlanKey) that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Aspect {
    /// The path.
    Path,
    /// The size.
    Bytes,
    /// The time of last modification.
    Modified,
    /// The inode number.
    Inode,
}

impl std::fmt::Display for Aspect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Path => "path",
            Self::Bytes => "size",
            Self::Modified => "modification time",
            Self::Inode => "inode",
        })
    }
}
