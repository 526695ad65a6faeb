// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that the data-paths paper published of the same paths: a reference beside the measured
//! ones.
//!
//! The paper draws its figures and has no tables; these are the numbers in its text, and ratios of
//! two of them. Its processor is of 2005 and its kernel 2.6: ratios can be compared, seconds
//! cannot.
//!
//! Sources: the data-paths paper (Halvorsen, Dalseng, Griwodz: Assessment of Data Path
//! Implementations for Download and Streaming), sections 3.5, 4 and 5.
//! Does not read values off its plots.

use std::collections::BTreeMap;

use measure::results::{Results, Row};
use measure::statistics::Figure;

/// One published number.
struct Published {
    member: &'static str,
    transport: &'static str,
    metric: &'static str,
    unit: &'static str,
    value: f64,
    source: &'static str,
}

/// Gigabits a second that one processor could carry, computed from the CPU cost (section 5).
const CARRIES: &str = "a core carries";
const TO_RTP_SENDFILE: &str = "relative to rtp_sendfile";
const TO_READ_SEND_RTP: &str = "relative to read_send_rtp";

const fn rtp(
    member: &'static str,
    metric: &'static str,
    value: f64,
    source: &'static str,
) -> Published {
    Published { member, transport: "rtp", metric, unit: "", value, source }
}

const PUBLISHED: &[Published] = &[
    Published {
        unit: "Gb/s",
        ..rtp("rtp_sendfile", CARRIES, 1.55, "the data-paths paper, section 5")
    },
    Published {
        unit: "Gb/s",
        ..rtp("krtpsendfile", CARRIES, 2.12, "the data-paths paper, section 5")
    },
    rtp("krtpsendfile", TO_RTP_SENDFILE, 1.0 - 0.27, "the data-paths paper, section 4: 27 % less"),
    rtp(
        "rtpsendfile",
        TO_RTP_SENDFILE,
        1.0 - 0.10,
        "the data-paths paper, section 4: at least 10 % less",
    ),
    rtp("krtpmsend", TO_READ_SEND_RTP, 1.0 - 0.36, "the data-paths paper, section 4: 36 % less"),
    rtp(
        "mmap_rtpmsend",
        TO_READ_SEND_RTP,
        1.0 - 0.24,
        "the data-paths paper, section 4: 24 % less",
    ),
    Published {
        transport: "udp",
        ..rtp(
            "sendfile",
            TO_RTP_SENDFILE,
            1.0 / 1.21,
            "the data-paths paper, section 3.5: RTP takes 21 % more",
        )
    },
    Published {
        transport: "udp",
        ..rtp(
            "ksendfile",
            TO_RTP_SENDFILE,
            1.0 / 1.29,
            "the data-paths paper, section 3.5: RTP takes 29 % more",
        )
    },
];

/// Returns the published ratios to a path: member, transport, value, source.
pub(crate) fn ratios(
    reference: &str,
) -> impl Iterator<Item = (&'static str, &'static str, f64, &'static str)> {
    let is_to = move |published: &&Published| {
        published.metric.strip_prefix("relative to ").is_some_and(|name| name == reference)
    };
    let of = PUBLISHED.iter().filter(is_to);
    of.map(|published| (published.member, published.transport, published.value, published.source))
}

/// Adds the published rows.
pub(crate) fn add(results: &mut Results) {
    results.rows.extend(PUBLISHED.iter().map(|published| {
        let parameters = [("transport", published.transport), ("bytes", "MTU"), ("sink", "a card")];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Row {
            experiment: "paths".to_owned(),
            member: published.member.to_owned(),
            parameters: BTreeMap::from(parameters),
            metric: published.metric.to_owned(),
            unit: published.unit.to_owned(),
            figure: Figure::published(published.value),
            published: Some(published.source.to_owned()),
            detail: false,
        }
    }));
}
