// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/measurements.md: a short section for each measurement file, in the experiments' order.
//!
//! `SECTIONS` lists the few tables that answer a reader's first question about an experiment.
//! `pagewire lab report` prints all figures of a file, and each section names its command; so this
//! document stays within `LINES_MAX` lines. docs/kernel.md and docs/peers.md have the tables of
//! `kernel`, and of `peers` and `http`.

use std::fmt::Write;

use lab::EXPERIMENTS;
use measure::report::markdown;
use measure::{Results, Row};

use crate::grid::{Marks, grid, value};
use crate::{claims, document, published};

/// The tables of one experiment.
struct Section {
    experiment: &'static str,
    tables: &'static [Table],
}

/// The rows of a table, and its layout.
struct Table {
    title: &'static str,
    metrics: &'static [&'static str],
    /// Allowed values of parameters. A row without the parameter is left out unless `""` is among
    /// them.
    only: &'static [(&'static str, &'static [&'static str])],
    /// Members in the table; all where the list is empty.
    members: &'static [&'static str],
    /// Parameters in a line's name, behind its member.
    lines: &'static [&'static str],
    /// The parameter whose values are the columns, or `metric`.
    columns: &'static str,
}

const SECTIONS: &[Section] = &[
    Section {
        experiment: "paths",
        tables: &[
            Table {
                title: "CPU cost of sending 1328-byte RTP packets, s/GB; 44 a call where a path \
                        can. `ifb-software`: the kernel segments; `ifb-device`: the device does",
                metrics: &["CPU cost"],
                only: &[
                    ("transport", &["rtp"]),
                    ("bytes", &[USUAL_BYTES]),
                    ("segments", &["", "44"]),
                ],
                members: &[],
                lines: &[],
                columns: "sink",
            },
            Table {
                title: "CPU cost of a download over TCP and a pair of veth devices, s/GB, by bytes \
                        of a step; both ends are charged",
                metrics: &["CPU cost"],
                only: &[("transport", &["tcp"]), ("bytes", &["4096", "131072", "1048576"])],
                // The paths of MSG_ZEROCOPY are left out: veth copies their bytes.
                members: &["read_write", "mmap_send", "sendfile", "splice", "uring_send"],
                lines: &["step"],
                columns: "bytes",
            },
        ],
    },
    Section {
        experiment: "batch",
        tables: &[Table {
            title: "CPU cost of RTP by packets a call, s/GB; the kernel segments",
            metrics: &["CPU cost"],
            only: &[
                ("sink", &["ifb-software"]),
                ("sessions", &["", "1"]),
                ("segments", &["2", "4", "7", "10", "16", "24", "32", "44"]),
            ],
            members: &[],
            lines: &[],
            columns: "segments",
        }],
    },
    Section {
        experiment: "sessions",
        tables: &[Table {
            title: "The running server on one core, by sessions of 5 Mb/s, into `ifb-software`",
            metrics: &["CPU cost", "cores at work", "memory a session", "late, 99.9 %"],
            only: &[("cores", &["1"]), ("sessions", SESSIONS)],
            members: &[],
            lines: &["metric"],
            columns: "sessions",
        }],
    },
    Section {
        experiment: "tracks",
        tables: &[Table {
            title: "The running server on one core with sessions of MP4 (H.264 of 5 Mb/s), beside \
                    those of a transport stream by wire image (`ts`), into `ifb-software`",
            metrics: &[
                "CPU cost",
                "CPU cost, of ts",
                "CPU cost, of mp4_one_by_one",
                "packets a call",
                "memory a session",
            ],
            only: &[],
            members: &[],
            lines: &[],
            columns: "metric",
        }],
    },
    Section {
        experiment: "pacing",
        tables: &[Table {
            title: "Streams of 5 Mb/s from the running server by pacer and burst, ms",
            metrics: &["gap, median", "longest burst", "delay factor, most", "CPU cost"],
            only: &[("packets", &["", "1"])],
            members: &[],
            lines: &["metric"],
            columns: "burst_ms",
        }],
    },
    Section {
        experiment: "cold",
        tables: &[Table {
            title: "A file outside the page cache: CPU cost, s/GB, by who reads ahead",
            metrics: &["CPU cost"],
            only: &[],
            members: &[],
            lines: &[],
            columns: "read ahead",
        }],
    },
    Section {
        experiment: "receive",
        tables: &[Table {
            title: "CPU cost of receiving 1328-byte packets, s/GB, by streams; the sender segments",
            metrics: &["CPU cost"],
            only: &[("sender", &["gso"]), ("bytes", &[USUAL_BYTES])],
            members: &[],
            lines: &[],
            columns: "streams",
        }],
    },
    Section {
        experiment: "recording",
        tables: &[Table {
            title: "`pagewire receive` with streams of 20 Mb/s for 10 s, by streams",
            metrics: &["lost", "CPU cost of the recorder", "recorder's cores"],
            only: &[],
            members: &[],
            lines: &["metric"],
            columns: "streams",
        }],
    },
    Section {
        experiment: "cameras",
        tables: &[Table {
            title: "Cameras of 4 Mb/s with sound recorded into fragmented MP4 for ten minutes: one \
                    process of pagewire, and one of `ffmpeg -c copy` for each camera",
            metrics: &[
                "recorder's cores",
                "recorder's cores, of ffmpeg",
                "CPU cost of the recorder",
                "memory a camera",
                "rate of the files",
                "lost",
            ],
            only: &[],
            members: &[],
            lines: &[],
            columns: "metric",
        }],
    },
    Section {
        experiment: "soak",
        tables: &[
            Table {
                title: "Half an hour of viewers of every transport who come, go, seek and vanish, \
                        at 80 % of what one core was found to serve",
                metrics: &[
                    "viewers",
                    "sessions begun",
                    "packets received",
                    "packets lost",
                    "sessions refused",
                    "sessions ended by the server",
                    "stalls of HLS",
                ],
                only: &[],
                members: &[],
                lines: &[],
                columns: "metric",
            },
            Table {
                title: "The server's memory and descriptors meanwhile",
                metrics: &[
                    "resident memory",
                    "resident memory, range of the last third",
                    "descriptors at the start",
                    "descriptors, the most",
                    "descriptors at the end",
                ],
                only: &[],
                members: &[],
                lines: &[],
                columns: "metric",
            },
        ],
    },
    Section {
        experiment: "planning",
        tables: &[
            Table {
                title: "Packet plans of files in the page cache on one core: a transport stream \
                        beside reading it alone (`pread`), and a movie of hours by its tables",
                metrics: &["throughput", "samples planned", "read of the file", "plan in memory"],
                only: &[("stream", &["", "pictures and sound"]), ("period", &[""])],
                members: &[],
                lines: &[],
                columns: "metric",
            },
            Table {
                title: "100 sessions of 5 Mb/s from the running server, in a quiet time and while \
                        10,000 files put into its folder are planned",
                metrics: &[
                    "fewest timely of a round",
                    "late, median",
                    "late, 99.9 %",
                    "until all files are planned",
                ],
                only: &[("period", &["quiet", "planning"])],
                members: &[],
                lines: &["period"],
                columns: "metric",
            },
        ],
    },
    Section {
        experiment: "cipher",
        tables: &[Table {
            title: "AES-128-CBC encryption on one core, messages of 16 KiB, GB/s, by messages \
                    enciphered together",
            metrics: &["throughput"],
            only: &[
                ("direction", &["encrypt"]),
                ("cipher", &["AES-128"]),
                ("keys", &["same"]),
                ("bytes", &["16384"]),
            ],
            members: &[],
            lines: &[],
            columns: "messages",
        }],
    },
    Section {
        experiment: "copy",
        tables: &[Table {
            title: "Copies of 128 to 2048 bytes in the cache: speed relative to glibc's `memcpy`, \
                    by alignment",
            metrics: &["relative to memcpy, 128 to 2048 bytes"],
            only: &[("memory", &["hot"])],
            members: &[
                "published_sse",
                "rep_movsb",
                "copy by sse2",
                "copy by avx2",
                "copy by avx512bw",
            ],
            lines: &[],
            columns: "placement",
        }],
    },
    Section {
        experiment: "descriptors",
        tables: &[Table {
            title: "Receive descriptors of 16 bytes: ns for each, from the cache and in a model of \
                    a driver's ring",
            metrics: &["time"],
            only: &[("format", &["16 B"])],
            members: &[],
            lines: &[],
            columns: "in",
        }],
    },
    Section {
        experiment: "seal",
        tables: &[Table {
            title: "Folders sealed by 2 threads, MB/s; `published` is the method of the \
                    file-encryption paper, `lanes` that of `pagewire seal folder`",
            metrics: &["throughput"],
            only: &[],
            members: &[],
            lines: &[],
            columns: "folder",
        }],
    },
];

/// Returns all sections, and the meaning of their marks.
pub(crate) fn all() -> String {
    let own = |name: &str| SECTIONS.iter().any(|section| section.experiment == name);
    let names = EXPERIMENTS.iter().map(|experiment| experiment.name).filter(|name| own(name));
    let measured: Vec<Results> = names.filter_map(document::measured).collect();
    let warnings: Vec<_> = measured.iter().flat_map(|results| results.warnings.clone()).collect();
    let marks = Marks::of(&warnings);
    let sections = measured.iter().map(|results| section(results, &marks.of_file(results)));
    let mut text: String = sections.collect();
    let legend = marks.legend(&text);
    if !legend.is_empty() {
        let _ = write!(text, "\n## Marks\n\n{legend}");
    }
    text.push('\n');
    text
}

/// Returns the section of an experiment that `SECTIONS` lists.
pub(crate) fn section(results: &Results, marks: &Marks<'_>) -> String {
    let name = results.experiment.as_str();
    let listed = SECTIONS.iter().find(|section| section.experiment == name);
    let listed = listed.unwrap_or_else(|| panic!("SECTIONS has no {name}"));
    let mut text = format!("\n## {name}\n");
    for table in listed.tables {
        let made = table.of(results, marks);
        assert!(!made.is_empty(), "{name}: no row for the table {}", table.title);
        let _ = write!(text, "\n{}:\n\n{made}", table.title);
    }
    if name == "paths" {
        let compared = published::table(results, marks);
        if !compared.is_empty() {
            let _ = write!(text, "\n{}:\n\n{compared}", published::TITLE);
        }
        let _ = write!(text, "\n{}", claims::sentence(results, marks));
    }
    let Results { command, commit, taken, host, .. } = results;
    let _ = write!(
        text,
        "\n`{command}`: {}; commit {commit}, {taken}. All {} figures, warnings and notes: \
         `pagewire lab report docs/measurements/{name}.json`\n",
        host.line(),
        results.rows.len()
    );
    text
}

impl Table {
    fn of(&self, results: &Results, marks: &Marks<'_>) -> String {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| self.has(row)).collect();
        let line = |row: &Row| {
            let names = self.lines.iter().map(|name| value(row, name));
            let named = names.filter(|name| !name.is_empty());
            named.fold(format!("`{}`", row.member), |line, name| format!("{line}, {name}"))
        };
        grid(&rows, self.columns, line, marks)
    }

    fn has(&self, row: &Row) -> bool {
        let is_in = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
        row.published.is_none()
            && is_in(self.metrics, &row.metric)
            && is_in(self.members, &row.member)
            && self.only.iter().all(|(name, values)| values.contains(&parameter(row, name)))
    }
}

/// Returns the report of `measure::report::markdown` with more tables, before its warnings and
/// facts.
pub(crate) fn with_tables(results: &Results, tables: &str) -> String {
    let report = markdown(results);
    let rest = report.find("\n### Warnings\n").or_else(|| report.find("\n| | |\n|---|---|\n"));
    let (own, rest) = report.split_at(rest.expect("a report has facts"));
    format!("{own}{tables}{rest}")
}

/// Returns a path's name, with the number of packets of a call where it is known.
pub(crate) fn named(member: &str, segments: &str) -> String {
    match segments {
        "" => format!("`{member}`"),
        segments => format!("`{member}`, {segments} a call"),
    }
}

/// Returns a row's parameter; empty where it has none of that name.
pub(crate) fn parameter<'a>(row: &'a Row, name: &str) -> &'a str {
    row.parameters.get(name).map_or("", String::as_str)
}

/// 12 bytes of RTP and 7 packets of transport stream.
pub(crate) const USUAL_BYTES: &str = "1328";
/// Numbers of sessions in the tables: the ends of the range and some between.
const SESSIONS: &[&str] = &["100", "500", "1000", "2000", "2500", "2750"];
/// The most lines of docs/measurements.md; `pagewire lab report` prints the rest.
const LINES_MAX: usize = 270;

#[test]
fn the_summary_is_short_and_lists_every_measurement_file() {
    // With UPDATE set, another test replaces the document on the disk.
    let text = document::text("docs/measurements.md");
    let head = text.lines().take_while(|line| !line.starts_with("<!--")).count();
    let lines = head + 2 + all().lines().count();
    assert!(lines <= LINES_MAX, "docs/measurements.md has {lines} lines, over {LINES_MAX}");
    for experiment in EXPERIMENTS.iter().map(|experiment| experiment.name) {
        let elsewhere = ["hls", "http", "kernel", "peers"].contains(&experiment);
        let listed = SECTIONS.iter().any(|section| section.experiment == experiment);
        let measured = document::measured(experiment).is_some();
        assert!(elsewhere || listed || !measured, "SECTIONS lacks the measured {experiment}");
    }
}

#[test]
fn a_table_has_the_rows_it_asks_for_with_their_marks() {
    let row = |member: &str, segments: u32, sink: &str, samples: [f64; 3]| {
        let figure = measure::Figure::of(samples.to_vec());
        let row = Row::new("batch", member, "CPU cost", "s/GB", figure);
        row.with("segments", segments).with("sink", sink)
    };
    let mut results = Results::new("batch", ["pagewire".to_owned()]);
    results.rows = vec![
        row("mmap_gso", 2, "ifb-software", [2.0, 2.0, 2.0]),
        row("mmap_gso", 10, "ifb-software", [1.0, 2.0, 3.0]),
        row("mmap_gso", 10, "ifb-device", [9.0, 9.0, 9.0]),
    ];
    results.warnings = measure::Warning::of_rows(&results.rows);
    let text = section(&results, &Marks::of(&results.warnings));
    let table = ":\n\n| segments | 2 | 10 |\n|---|--:|--:|\n| `mmap_gso` | 2.00 | 2.00 !1 |\n";
    assert!(text.contains(table) && !text.contains("9.00"), "{text}");
    assert!(text.contains("\n`pagewire`: "), "{text}");
    assert!(text.contains("All 3 figures"), "{text}");
}

#[test]
fn metrics_stand_below_each_other_where_a_table_has_several() {
    let row = |member: &str, metric: &str, unit: &str, value: f64, cores: u32, sessions: u32| {
        let figure = measure::Figure::of(vec![value; 5]);
        let row = Row::new("sessions", member, metric, unit, figure);
        row.with("cores", cores).with("sessions", sessions)
    };
    let mut results = Results::new("sessions", []);
    results.rows = vec![
        row("server", "CPU cost", "s/GB", 0.5, 1, 500),
        row("server", "CPU cost", "s/GB", 0.6, 1, 100),
        row("clients", "late, 99.9 %", "ms", 3.0, 1, 100),
        row("server", "CPU cost", "s/GB", 0.7, 2, 500),
    ];
    let text = section(&results, &Marks::of(&results.warnings));
    let table = "| sessions | 100 | 500 |\n|---|--:|--:|\n\
                 | `server`, CPU cost, s/GB | 0.600 | 0.500 |\n\
                 | `clients`, late, 99.9 %, ms | 3.00 |  |\n";
    assert!(text.contains(table), "{text}");
}
