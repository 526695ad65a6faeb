// SPDX-License-Identifier: MIT OR Apache-2.0
//! The experiments: one file and one line each.
//!
//! Sources: tables, figures and future work (`sessions`) of the data-paths paper.
//! Does not print; results are data.

mod batch;
pub(crate) mod cameras;
mod cipher;
mod cold;
mod copy;
mod descriptors;
pub(crate) mod hls;
pub(crate) mod http;
mod kernel;
pub(crate) mod pacing;
mod paths;
pub(crate) mod peers;
pub(crate) mod planning;
mod receive;
mod recording;
mod seal;
mod sessions;
mod soak;
pub(crate) mod tracks;

use crate::explain::{self, Explanation};
use measure::Error;
use measure::Options;
use measure::results::Results;

/// An experiment of the lab.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Summary of one line.
    pub summary: &'static str,
    /// True for one that sends, and so runs in its own network namespace ([`measure::private`]).
    pub sends: bool,
    run: fn(&Options) -> Result<Results, Error>,
    /// Text for `--help`.
    pub explanation: &'static Explanation,
}

/// All experiments.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "paths",
        summary: "the CPU cost of every path from file to socket, by transport, size and sink",
        sends: true,
        run: paths::run,
        explanation: &explain::PATHS_OF,
    },
    Experiment {
        name: "batch",
        summary: "packets a call against the CPU cost, and against the gaps the receiver sees",
        sends: true,
        run: batch::run,
        explanation: &explain::BATCH,
    },
    Experiment {
        name: "sessions",
        summary: "many paced sessions: CPU cost, lateness, loss, memory, and how many fit",
        sends: true,
        run: sessions::run,
        explanation: &explain::SESSIONS,
    },
    Experiment {
        name: "tracks",
        summary: "paced sessions of MP4 beside those of a transport stream: CPU cost, lateness",
        sends: true,
        run: tracks::run,
        explanation: &explain::TRACKS,
    },
    Experiment {
        name: "pacing",
        summary: "how even streams are, by pacer and burst, against the CPU cost",
        sends: true,
        run: pacing::run,
        explanation: &explain::PACING,
    },
    Experiment {
        name: "cold",
        summary: "the page cache is empty: CPU cost and throughput with and without reading ahead",
        sends: true,
        run: cold::run,
        explanation: &explain::COLD,
    },
    Experiment {
        name: "receive",
        summary: "the CPU cost of every way from socket to memory, and what is lost at given rates",
        sends: true,
        run: receive::run,
        explanation: &explain::RECEIVE,
    },
    Experiment {
        name: "recording",
        summary: "streams recorded at once by the program: losses, equal files, CPU cost",
        sends: true,
        run: recording::run,
        explanation: &explain::RECORDING,
    },
    Experiment {
        name: "cameras",
        summary: "cameras recorded into fragmented MP4, beside ffmpeg: CPU cost, memory, losses",
        sends: true,
        run: cameras::run,
        explanation: &explain::CAMERAS,
    },
    Experiment {
        name: "peers",
        summary: "this server beside GStreamer, live555, MediaMTX, multicat, ffmpeg and nginx",
        sends: true,
        run: peers::run,
        explanation: &explain::PEERS,
    },
    Experiment {
        name: "http",
        summary: "files over HTTP and HTTPS beside nginx: requests of a core, CPU cost, latency",
        sends: true,
        run: http::run,
        explanation: &explain::HTTP,
    },
    Experiment {
        name: "hls",
        summary: "HLS made on the fly beside plain ranges and beside nginx with prepared segments",
        sends: true,
        run: hls::run,
        explanation: &explain::HLS,
    },
    Experiment {
        name: "soak",
        summary: "viewers of every transport for half an hour: losses, memory, descriptors",
        sends: true,
        run: soak::run,
        explanation: &explain::SOAK,
    },
    Experiment {
        name: "planning",
        summary: "packet plans: bytes and samples a second, and a folder beside paced sessions",
        sends: true,
        run: planning::run,
        explanation: &explain::PLANNING,
    },
    Experiment {
        name: "cipher",
        summary: "AES-CBC in memory: lanes against one message after the other",
        sends: false,
        run: cipher::run,
        explanation: &explain::CIPHER,
    },
    Experiment {
        name: "copy",
        summary: "copies in memory by routine, size, alignment and cache, and with a sum",
        sends: false,
        run: copy::run,
        explanation: &explain::COPY,
    },
    Experiment {
        name: "descriptors",
        summary: "receive descriptors to metadata: by variant, in cache and in a driver's loop",
        sends: false,
        run: descriptors::run,
        explanation: &explain::DESCRIPTORS,
    },
    Experiment {
        name: "seal",
        summary: "folders encrypted: a paper's grid by its method and by lanes; libraries",
        sends: false,
        run: seal::run,
        explanation: &explain::SEAL,
    },
    Experiment {
        name: "kernel",
        summary: "copies inside a kernel, and paths through a stock one: UML and QEMU",
        sends: false,
        run: kernel::run,
        explanation: &explain::KERNEL,
    },
];

/// Returns the experiment of that name.
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}

impl Experiment {
    /// Runs the experiment. For one that sends, the calling process is in its own network namespace
    /// ([`measure::private`]), unless the sink is a device of the machine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] names what the host lacks; a failing member is not an error but a
    /// warning among the results.
    pub fn run(&self, options: &Options) -> Result<Results, Error> {
        let mut results = (self.run)(options)?;
        let doubts = measure::Warning::of_rows(&results.rows);
        results.warnings.extend(doubts);
        Ok(results)
    }
}
