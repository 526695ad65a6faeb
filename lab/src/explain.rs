// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of `pagewire lab X --help`: the quantity that X measures, its members, sinks, units and
//! duration, and a line to type.
//!
//! Lists of members come from the lists in the code where there is one, so that a new member
//! appears here too.
//!
//! Does not describe options; the command line has their texts, and shows those that are named
//! here.

use std::fmt;

use paths::{INTERLEAVED_PATHS, PATHS, RECEIVE_PATHS, Transport};

use crate::experiments::{cameras, hls, http, pacing, peers, planning, tracks};

/// The explanation of an experiment, or of a verb on measurement files.
pub struct Explanation {
    /// The quantity measured, its object, and the method.
    pub measures: &'static str,
    /// Names that are compared; values of `--member`.
    pub members: fn() -> String,
    /// Targets of packets or files.
    pub sinks: &'static str,
    /// Units of the figures, and which direction is better.
    pub units: &'static str,
    /// Duration, quick and in full.
    pub duration: &'static str,
    /// Commands that can be typed.
    pub example: &'static [&'static str],
    /// The long options that the experiment uses.
    pub options: &'static [&'static str],
}

impl Explanation {
    /// Returns the name and text of each part.
    fn parts(&self) -> [(&'static str, String); 6] {
        [
            ("measures", self.measures.to_owned()),
            ("members", (self.members)()),
            ("sinks", self.sinks.to_owned()),
            ("units", self.units.to_owned()),
            ("duration", self.duration.to_owned()),
            ("example", self.example.join("\n")),
        ]
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, text) in self.parts() {
            let mut head = name;
            for line in text.lines().flat_map(|text| wrapped(text, LINE_CHARS)) {
                writeln!(f, "{head:NAME_CHARS$}{line}")?;
                head = "";
            }
        }
        Ok(())
    }
}

/// Breaks a text between words into lines of at most `chars` characters; a longer word has its own
/// line.
pub fn wrapped(text: &str, chars: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one at least");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > chars {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

fn paths_by_transport() -> String {
    let of = |transport: Transport| {
        let all = PATHS.iter().chain(INTERLEAVED_PATHS);
        let names = all.filter(|spec| spec.transport == transport).map(|spec| spec.name);
        format!("{transport}: {}", names.collect::<Vec<_>>().join(", "))
    };
    let lists = Transport::ALL.map(of).join("\n");
    format!("{lists}\nthose that the host lacks are skipped with the reason")
}

fn receivers() -> String {
    let names: Vec<&str> = RECEIVE_PATHS.iter().map(|spec| spec.name).collect();
    names.join(", ")
}

const NAME_CHARS: usize = 10;
const LINE_CHARS: usize = 78;
const NO_SINK: &str = "none: memory of the program, on one core";

pub(crate) static PATHS_OF: Explanation = Explanation {
    measures: "the processor time of every path from file to socket per gigabyte that it sends, \
               its system calls a packet and copies a byte, in interleaved rounds",
    members: paths_by_transport,
    sinks: "ifb-software: a null device for which the kernel cuts segmented sends; ifb-device: one \
            that takes them whole; veth: a pair with a receiver. --interface sends by a real card",
    units: "CPU cost: processor seconds per 10⁹ bytes (s/GB), less is cheaper; relative to \
            read_writev, round by round; what a core carries, Gb/s; calls a packet; copies a byte",
    duration: "--quick under a minute, one size; in full all sizes and sinks, up to an hour or \
               more: the bar has an estimate. Less: --transport rtp --size 1328 \
               --sink ifb-software",
    example: &[
        "pagewire lab paths --quick --json mine.json",
        "pagewire lab paths --transport rtp --size 1328 --member wire_sendfile",
    ],
    options: &["transport", "member", "size", "sink", "interface", "to"],
};

pub(crate) static BATCH: Explanation = Explanation {
    measures: "the CPU cost over the number of packets that a call carries, and the gap that such \
               a burst leaves between packets at a receiver (a stream paced to 50 Mb/s)",
    members: || "RTP paths whose calls carry several packets: see paths".to_owned(),
    sinks: "ifb-software, ifb-device for the CPU cost; veth for the gaps",
    units: "CPU cost: s/GB, less is cheaper; gap: µs, median and 99.9 %, less is smoother",
    duration: "--quick under a minute; in full some minutes",
    example: &["pagewire lab batch --quick --member mmap_gso"],
    options: &["member", "sink"],
};

pub(crate) static SESSIONS: Explanation = Explanation {
    measures: "the installed server with N paced RTSP sessions of a 5 Mb/s asset: its CPU cost, \
               lateness, loss and memory, and the largest N of which every verified session is \
               timely",
    members: || "server; clients (one session in some, which verify every packet)".to_owned(),
    sinks: "ifb-software for most sessions, veth for the verified ones; veth without segmentation \
            in the device for all where TCP is beside UDP (--transport udp,tcp), and TCP once more \
            with TSO",
    units: "CPU cost: s/GB; late: ms; memory: KiB a session; most timely sessions: more is better; \
            sessions a core, TCP of UDP: 1 is as many",
    duration: "some 20 seconds a number of sessions and transport; in full several minutes",
    example: &[
        "pagewire lab sessions --sessions 100 --sessions 500 --cores 1",
        "pagewire lab sessions --transport udp,tcp --cores 1",
    ],
    options: &["transport", "sessions", "seconds", "cores"],
};

pub(crate) static TRACKS: Explanation = Explanation {
    measures: "the installed server on one core with N sessions of an MP4 file of 5 Mb/s (H.264, \
               with AAC and without), beside as many of a transport stream by wire image, and \
               beside the same packets one a call: CPU cost, packets a call, lateness, memory",
    members: || tracks::member_names().join(", "),
    sinks: "ifb-software for most sessions, veth for the verified ones",
    units: "CPU cost: s/GB, and of that of another case in the same round; late: ms; memory: KiB a \
            session",
    duration: "some 15 seconds a case and round: five minutes in full",
    example: &["pagewire lab tracks --sessions 200 --rounds 3"],
    options: &["member", "sessions", "seconds", "rounds"],
};

pub(crate) static PACING: Explanation = Explanation {
    measures: "the installed server with N sessions of a 5 Mb/s asset, by pacer (--pacing of \
               serve) and burst (1 to 40 ms): gaps between packets, the longest burst and the \
               delay factor (RFC 4445) at receivers, against the server's CPU cost",
    members: || {
        format!(
            "{}; txtime needs a kernel with the queueing discipline fq, else it is skipped with \
             the reason",
            pacing::MEMBERS.join(", ")
        )
    },
    sinks: "veth for a few watched sessions, ifb-software for the others",
    units: "gap: µs; burst: packets less than 1 ms apart; longest burst: packets and bytes of a \
            session in any millisecond, fewer is smoother; delay factor: ms of buffer that \
            a receiver needs, less is smoother; media \
            loss: packets; CPU cost: s/GB, less is cheaper, and relative to user at 20 ms",
    duration: "--quick under a minute; in full some 15 minutes",
    example: &[
        "pagewire lab pacing --quick",
        "pagewire lab pacing --sessions 500 --json mine.json",
    ],
    options: &["member", "sessions", "seconds"],
};

pub(crate) static COLD: Explanation = Explanation {
    measures: "a file that is not in the page cache, sent once: without read-ahead, with the \
               kernel's, and with a reading thread as the server has",
    members: || "read_writev, mmap_gso, wire_sendfile".to_owned(),
    sinks: "ifb-software; the file lies on the disk below the working folder's temporary files",
    units: "CPU cost: s/GB, less is cheaper; throughput: MB/s, more is faster",
    duration: "--quick under a minute; in full minutes, by the disk",
    example: &["pagewire lab cold --quick"],
    options: &["member", "sink"],
};

pub(crate) static RECEIVE: Explanation = Explanation {
    measures: "the processor time of every way from socket to memory per gigabyte, sending \
               subtracted; then the packets lost at given rates",
    members: receivers,
    sinks: "a veth pair in a network of its own; sender=gso sends segmented, single one by one",
    units: "CPU cost: s/GB, less is cheaper; a core takes in: packets/µs; lost: %; relative to \
            recvmmsg",
    duration: "--quick under a minute; in full some minutes",
    example: &["pagewire lab receive --quick --member recvmmsg_gro"],
    options: &["member", "size"],
};

pub(crate) static RECORDING: Explanation = Explanation {
    measures: "N streams of 20 Mb/s recorded at once by the installed program: losses, files \
               compared with the source byte by byte, processor time",
    members: || "auto, or the way of receiving that --member names (see receive)".to_owned(),
    sinks: "files in a file system in memory; packets by a veth pair",
    units: "CPU cost of the recorder: s/GB; its cores: parts of 1; lost: packets",
    duration: "10 seconds a number of streams and round: --quick under a minute, in full minutes",
    example: &["pagewire lab recording --quick"],
    options: &["member"],
};

pub(crate) static CAMERAS: Explanation = Explanation {
    measures: "N cameras of 4 Mb/s with sound (H.264, A-law) recorded by RTSP into fragmented MP4: \
               by one process of pagewire, and by a process of ffmpeg -c copy for each camera; the \
               recorders take turns, each on one core",
    members: || cameras::member_names().join(", "),
    sinks: "loopback in a network of its own, which charges the network's work to the server; \
            files in a file system in memory, or below --folder",
    units: "the recorder's cores: parts of 1; CPU cost: s/GB of files; memory: MB a camera; lost: \
            packets that it reports; recorder's cores, of ffmpeg: times",
    duration: "--quick some 15 seconds; in full some 8 minutes and 4 GB. The cameras are \
               --sessions, 64 without it; a turn has --seconds, 60 without it",
    example: &[
        "pagewire lab cameras --quick",
        "pagewire lab cameras --sessions 16 --member pagewire --rounds 5",
    ],
    options: &["member", "sessions", "seconds", "folder"],
};

pub(crate) static PEERS: Explanation = Explanation {
    measures: "pagewire's server beside other programs that serve media, one at a time on one \
               core, with the same clip and the same clients, over UDP and (RTSP servers) over \
               TCP: the largest number of timely sessions, CPU cost, memory, lateness, downloads",
    members: || format!("{}\nthose that the machine lacks are skipped", peers::names().join(", ")),
    sinks: "loopback in a network of its own; it charges receiving to the sender",
    units: "timely sessions a core: more is better; cpu_s_per_gb: s/GB; memory: KiB a session; \
            late: ms; requests: 1/s; CPU time of a request: µs",
    duration: "--quick under two minutes; in full some 15 minutes; no search where \
               --sessions is given",
    example: &["pagewire lab peers --quick", "pagewire lab peers --member pagewire --member nginx"],
    options: &["transport", "member", "sessions", "seconds", "folder"],
};

pub(crate) static HTTP: Explanation = Explanation {
    measures: "the installed server beside nginx with one worker, one at a time on one core, with \
               the same client: files of 1 KB to 1 GB on 1, 64 and 1,000 connections that stay \
               open, 1 GB over TLS 1.3, and 1,000 downloads paced to 5 Mb/s each",
    members: || format!("{}\nparts: {}", http::member_names().join(", "), http::PARTS.join(", ")),
    sinks: "loopback in a network of its own; it charges receiving to the sender",
    units: "requests of a core: per processor second of the server, more is better; CPU cost: \
            s/GB, of the server, and with the client's; latency: ms, median and 99 %; CPU cost and \
            requests of a core, of nginx: times; within 5 % of the rate: % of paced connections",
    duration: "--quick some 15 seconds; in full some 15 minutes. Less: --part small --size 1000 \
               --sessions 64 (connections)",
    example: &[
        "pagewire lab http --quick",
        "pagewire lab http --part small --size 1000 --sessions 64 --rounds 9",
    ],
    options: &["member", "part", "size", "sessions", "seconds", "folder"],
};

pub(crate) static HLS: Explanation = Explanation {
    measures: "segments that the installed server makes of a film of 5 Mb/s (fMP4 and byte ranges \
               of a transport stream) and the playlist of a film of two hours: processor time of \
               the server beside plain ranges of the same bytes, and beside nginx with one worker \
               and segments that shaka-packager or ffmpeg has prepared; and viewers a core, \
               modelled by pagewire load",
    members: || {
        format!("{}\nparts: {}", hls::member_names().join(", "), hls::part_names().join(", "))
    },
    sinks: "loopback in a network of its own; it charges receiving to the sender",
    units: "CPU time of a request: µs, user and system; CPU cost: s/GB, of the server, and with \
            the client's; both of plain ranges and of nginx: times, less is cheaper; copies: a \
            byte of media, by the server's count; latency: ms",
    duration: "--quick some 40 seconds; in full some ten minutes. Less: --part together \
               --sessions 1 (connections)",
    example: &["pagewire lab hls --quick", "pagewire lab hls --part playlist --rounds 9"],
    options: &["part", "sessions", "seconds", "folder"],
};

pub(crate) static SOAK: Explanation = Explanation {
    measures: "the installed server for half an hour with viewers of every transport who stay, \
               seek, pause, leave and vanish, at 80 % of the most that harmed nobody: lost \
               packets, refused sessions, stalls, and the server's memory and descriptors",
    members: || "pagewire".to_owned(),
    sinks: "loopback in a network of its own; it charges receiving to the sender",
    units: "memory: MB, one sample each ten seconds, and the range of the last third in percent \
            of its mean; descriptors: before the first viewer, and after the last has left",
    duration: "--quick some two minutes; in full some 35. Less: --seconds 300",
    example: &["pagewire lab soak --quick", "pagewire lab soak --json soak.json"],
    options: &["seconds", "folder"],
};

pub(crate) static PLANNING: Explanation = Explanation {
    measures: "packet plans of files in the page cache, on one core: bytes a second of transport \
               streams beside reading alone, samples a second of MP4, fragmented MP4 and Matroska \
               with the bytes that are read for it and the size of the plan; then the installed \
               server with paced sessions while a folder of 10,000 files is put into its own",
    members: || format!("parts: {}", planning::MEMBERS.join(", ")),
    sinks: "files in a file system in memory, or below --folder; packets by a veth pair",
    units: "throughput: GB/s, CPU cost: s/GB, relative to pread: times; samples planned: 10⁶/s; \
            time: ns a packet or sample; read of the file: %; plan: MB an hour of media; late: \
            ms, with a folder to plan and without",
    duration: "--quick under 20 seconds; in full some two minutes",
    example: &["pagewire lab planning --quick", "pagewire lab planning --member tables"],
    options: &["member", "sessions", "seconds", "cores", "folder"],
};

pub(crate) static CIPHER: Explanation = Explanation {
    measures: "AES-CBC in memory on one core: lanes, which encrypt many messages at once, against \
               OpenSSL and the cbc crate, one message after the other",
    members: || {
        "openssl (the reference), cbc crate, and the variants that this processor has: portable, \
         aes-ni, vaes256, vaes512"
            .to_owned()
    },
    sinks: NO_SINK,
    units: "throughput: GB/s of processor time, more is faster; relative to openssl, times",
    duration: "--quick under a minute; in full minutes: fewer with --size",
    example: &["pagewire lab cipher --quick", "pagewire lab cipher --size 16384 --member vaes512"],
    options: &["member", "size"],
};

pub(crate) static COPY: Explanation = Explanation {
    measures: "copies in memory by routine, size, alignment and cache, and with a sum taken on the \
               way; the simd-copy paper's figure 6 first",
    members: || {
        "memcpy of the C library (the reference), rep_movsb, published_sse, and this program's own \
         by what registers there are"
            .to_owned()
    },
    sinks: NO_SINK,
    units: "throughput: GB/s, more is faster; relative to memcpy, times; time: ns",
    duration: "--quick under a minute; in full minutes: fewer with --size or --rounds",
    example: &["pagewire lab copy --quick", "pagewire lab copy --size 1500 --member published_sse"],
    options: &["member", "size"],
};

pub(crate) static DESCRIPTORS: Explanation = Explanation {
    measures: "receive descriptors turned into metadata: in the cache, and in the whole loop of a \
               driver with a card's model on another core; and headers of packets",
    members: || {
        "narrow_store (the published fault), sse_blend (its remedy, the reference), scalar, avx2, \
         avx512"
            .to_owned()
    },
    sinks: "none: memory of the program; the ring model takes a second core",
    units: "throughput: GB/s, more is faster; relative to sse_blend, times; time: ns a packet; the \
            share lost to store forwarding is derived from times",
    duration: "--quick under a minute; in full some minutes",
    example: &["pagewire lab descriptors --quick"],
    options: &["member"],
};

pub(crate) static SEAL: Explanation = Explanation {
    measures: "folders encrypted by the file-encryption paper's method (OpenSSL, a file a \
               thread), by the same with this program's cipher, and by lanes; then libraries as \
               publishers have them",
    members: || {
        "published (the reference), file_per_thread, lanes; copy_only beside the libraries"
            .to_owned()
    },
    sinks: "folders in a file system in memory; --folder names another place",
    units: "throughput: MB/s, more is faster; CPU cost: s/GB, less is cheaper; relative to \
            published",
    duration: "--quick under a minute; in full minutes to an hour: fewer with --size and --threads",
    example: &["pagewire lab seal --quick", "pagewire lab seal --size 4096 --threads 2 --rounds 5"],
    options: &["member", "size", "threads", "folder"],
};

pub(crate) static KERNEL: Explanation = Explanation {
    measures: "the studies inside a kernel: memcpy by vector registers in User Mode Linux, loops \
               that the compiler vectorises, instructions a packet under QEMU, the engine's check",
    members: || {
        "memcpy: stock (the reference), movsb, movsq, sse_published, avx2, avx512, sized; paths: \
         all of the list, and the engine's\nparts: memcpy, vectorise, paths, fpu, check"
            .to_owned()
    },
    sinks: "a guest's devices: nothing leaves the machine and nothing is installed on it",
    units: "CPU cost: s/GB; time a call: µs; memcpy's own time: s and %, with √n of its samples; \
            instructions a packet. Less is cheaper",
    duration: "the first time a kernel is built (5 minutes) and one is fetched (130 MB); then \
               --quick under 3 minutes, in full under 25: rounds go on until spreads are at most \
               10 %",
    example: &[
        "pagewire lab kernel --quick",
        "pagewire lab kernel --part memcpy --variant avx2 --rounds 9",
    ],
    options: &["part", "member", "tree", "rounds-max"],
};

/// Explanation of `pagewire lab compare`.
pub static COMPARE: Explanation = Explanation {
    measures: "nothing: it says what changed from one measurement file to another, beyond what \
               noise and the place of pages in memory explain",
    members: || "two files of one experiment, the older one first".to_owned(),
    sinks: "the terminal: a verdict of at most 20 lines; --all also prints every figure",
    units: "ratios in words: 1.24 times cheaper, 7 % dearer; a change is over 2 × 1.4826 × both \
            median absolute deviations, and over 2 %",
    duration: "at once",
    example: &["pagewire lab compare docs/measurements/paths.json mine.json"],
    options: &["all"],
};

/// Explanation of `pagewire lab report`.
pub static REPORT: Explanation = Explanation {
    measures: "nothing: it shows a measurement file as a table, or as a page with plots",
    members: || "a file that lab wrote with --json".to_owned(),
    sinks: "the terminal; with --csv, --markdown, --html or --json files instead",
    units: "those of the file: medians, with their spread (median absolute deviation) and warnings",
    duration: "at once",
    example: &["pagewire lab report mine.json --html mine.html"],
    options: &[],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENTS;

    #[test]
    fn every_experiment_says_all_of_it_in_lines_of_a_terminal() {
        let experiments = EXPERIMENTS.iter().map(|other| (other.name, other.explanation));
        for (name, explanation) in experiments.chain([("compare", &COMPARE), ("report", &REPORT)]) {
            for (part, text) in explanation.parts() {
                assert!(text.len() > 5, "{name}: {part}");
            }
            let shown = explanation.to_string();
            assert!(shown.lines().all(|line| line.chars().count() <= NAME_CHARS + LINE_CHARS));
            let start = format!("pagewire lab {name} ");
            let example = explanation.example;
            assert!(example.iter().all(|line| line.starts_with(&start)), "{name}: {example:?}");
        }
        let shown = PATHS_OF.to_string();
        assert!(PATHS.iter().all(|spec| shown.contains(spec.name)), "{shown}");
    }
}
