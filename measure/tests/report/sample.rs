// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up measurements: a small one for exact outputs and a large one in the shape of a full run.

use measure::{Figure, HostFacts, Results, Row, Warning};

/// Returns three members at one size.
pub(crate) fn small() -> Results {
    let cpu_s_per_gb = |member: &str, segments: u32, samples: [f64; 5]| {
        let figure = Figure::of(samples.to_vec());
        let row = Row::new("paths", member, "CPU cost", "s/GB", figure);
        row.with("bytes", 1328).with("segments", segments)
    };
    let mut rows = vec![
        cpu_s_per_gb("read_writev", 1, [2.2, 2.21, 2.19, 2.2, 2.2]),
        cpu_s_per_gb("wire_sendfile", 44, [0.29, 0.33, 0.25, 0.31, 0.27]),
    ];
    relate(&mut rows, "read_writev");
    let figure = Figure::published(0.73);
    let published = Row::new("paths", "krtpsendfile", "relative to read_writev", "", figure);
    rows.push(Row { published: Some("the study, figure 5".to_owned()), ..published });
    of(rows)
}

/// Returns all sizes, two sinks, many members, three metrics, sessions, and one of each warning.
pub(crate) fn large() -> Results {
    let members = [
        ("read_send_rtp", 1, 2.1),
        ("read_writev", 1, 2.2),
        ("mmap_send_rtp", 1, 2.9),
        ("mmap_writev", 1, 1.71),
        ("rtp_sendfile", 1, 3.6),
        ("more_sendfile", 1, 2.8),
        ("mmap_sendmmsg", 1, 1.5),
        ("packet_ring", 1, 1.2),
        ("xdp", 1, 0.9),
        ("mmap_gso", 10, 0.52),
        ("mmap_gso", 44, 0.41),
        ("uring", 44, 0.40),
        ("uring_zc", 44, 0.38),
        ("wire_sendfile", 10, 0.43),
        ("wire_sendfile", 44, 0.29),
    ];
    let mut noise = Noise(7);
    let mut rows = Vec::new();
    for sink in ["ifb software", "ifb device"] {
        for bytes in [64, 128, 256, 512, 1024, 1328, 1500, 4096, 9000, 16384, 65507_u32] {
            for (member, segments, cost) in members {
                if segments > 1 && bytes > 9000 {
                    continue;
                }
                let offload = if sink == "ifb device" && segments > 1 { 0.35 } else { 1.0 };
                let median = cost * offload * (0.12 + 0.88 * 1328.0 / f64::from(bytes));
                let samples = (0..7).map(|_| median * noise.near_one(0.02)).collect();
                let row = Row::new("paths", member, "CPU cost", "s/GB", Figure::of(samples));
                let row = row.with("bytes", bytes).with("segments", segments).with("sink", sink);
                rows.push(row.with("transport", "rtp"));
            }
        }
    }
    relate(&mut rows, "read_writev");
    for (member, segments, _) in members {
        let calls = if segments == 1 { 2.0 } else { 1.0 / f64::from(segments) };
        let row = Row::new("paths", member, "crossings", "per packet", Figure::of(vec![calls]));
        rows.push(row.with("segments", segments).with("transport", "rtp"));
    }
    for (size, value) in [(64, 0.81), (512, 0.79), (1328, 0.73), (9000, 0.7)] {
        for sink in ["ifb software", "ifb device"] {
            let metric = "relative to read_writev";
            let row = Row::new("paths", "krtpsendfile", metric, "", Figure::published(value));
            let row = row.with("bytes", size).with("sink", sink).with("transport", "rtp");
            rows.push(Row { published: Some("the study, figure 5".to_owned()), ..row });
        }
    }
    let mut results = of(rows);
    results.warnings = Warning::of_rows(&results.rows);
    results.warnings.extend(Warning::examples());
    results.complete = false;
    results
}

fn of(rows: Vec<Row>) -> Results {
    let command = ["/opt/bin/pagewire", "lab", "paths", "--json", "paths.json"];
    let mut results = Results::new("paths", command.map(str::to_owned));
    results.commit = "0123456789ab".to_owned();
    results.taken = "2026-11-21T07:08:09Z".to_owned();
    results.host = HostFacts {
        kernel: "6.18.44".to_owned(),
        processor: "AMD EPYC".to_owned(),
        cores: 2,
        memory_bytes: 8 << 30,
        virtualised: Some("Amazon EC2".to_owned()),
        governor: None,
    };
    results.complete = true;
    results.notes = vec![
        "RTP packets into an ifb device that cannot segment; 5 rounds of 400 MB a member, \
         interleaved; the file of 256 MB is in the page cache"
            .to_owned(),
        "skip: xdp: needs CAP_NET_RAW in the initial namespace; found none".to_owned(),
    ];
    results.warnings = Warning::of_rows(&rows);
    results.rows = rows;
    results
}

/// Adds each CPU cost's ratio to that of `reference` with the same size and sink.
fn relate(rows: &mut Vec<Row>, reference: &str) {
    let conditions = |row: &Row| ["bytes", "sink"].map(|name| row.parameters.get(name).cloned());
    let cpu_costs = rows.clone();
    for row in &cpu_costs {
        let same = |other: &&Row| other.member == reference && conditions(other) == conditions(row);
        let reference = cpu_costs.iter().find(same).expect("every size has its reference");
        let figure = row.figure.relative_to(&reference.figure).expect("it is not 0");
        let metric = format!("relative to {}", reference.member);
        rows.push(Row { figure, metric, unit: String::new(), ..row.clone() });
    }
}

/// A random generator (xorshift64) with the same output in every run.
struct Noise(u64);

impl Noise {
    fn near_one(&mut self, by: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 % 1000) as f64 / 500.0 - 1.0).mul_add(by, 1.0)
    }
}
