// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common names for the media of a description.
//!
//! A camera's description contains `H264/90000` and `MPEG4-GENERIC/48000/2`; people use the names
//! H.264 and AAC.
//!
//! Sources: RFC 3551 §6 (payload types and names), RFC 6184, RFC 7798, RFC 3640, RFC 6416.
//! Does not read the description (`wire::sdp` does, and lists the media).

/// Returns `H.264 video and AAC audio` for
/// `video H264/90000 (RTP/AVP), audio MPEG4-GENERIC/48000/2 (RTP/AVP)`; unknown names are
/// unchanged.
pub(super) fn names_of(offered: &str) -> String {
    offered.split(", ").map(one).collect::<Vec<_>>().join(" and ")
}

fn one(media: &str) -> String {
    let media = media.strip_suffix(" (RTP/AVP)").unwrap_or(media);
    let Some((kind, encodings)) = media.split_once(' ') else { return media.to_owned() };
    let (encodings, protocol) = encodings.split_once(" (").unwrap_or((encodings, ""));
    let names: Vec<&str> = encodings.split(" or ").map(name).collect();
    let mut text = format!("{} {kind}", names.join(" or "));
    if let Some(protocol) = protocol.strip_suffix(')') {
        text = format!("{text} over {protocol}");
    }
    text
}

fn name(encoding: &str) -> &str {
    let name = encoding.split('/').next().unwrap_or_default();
    let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map_or(name, |(_, word)| word)
}

const NAMES: &[(&str, &str)] = &[
    ("H264", "H.264"),
    ("H265", "H.265"),
    ("JPEG", "Motion JPEG"),
    ("payload type 26", "Motion JPEG"),
    ("MP4V-ES", "MPEG-4"),
    ("MPV", "MPEG-2"),
    ("payload type 32", "MPEG-2"),
    ("MPEG4-GENERIC", "AAC"),
    ("MP4A-LATM", "AAC"),
    ("PCMU", "G.711"),
    ("payload type 0", "G.711"),
    ("PCMA", "G.711"),
    ("payload type 8", "G.711"),
    ("OPUS", "Opus"),
    ("MP2T", "MPEG transport stream"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cameras_offer_has_the_names_that_people_know() {
        for (offered, words) in [
            (
                "video H264/90000 (RTP/AVP), audio MPEG4-GENERIC/48000/2 (RTP/AVP)",
                "H.264 video and AAC audio",
            ),
            ("video H265/90000 (RTP/AVP)", "H.265 video"),
            ("video payload type 26 (RTP/AVP)", "Motion JPEG video"),
            ("audio PCMU/8000 or G726-32/8000 (RTP/AVP)", "G.711 or G726-32 audio"),
            ("video MP2T/90000 (RTP/SAVP)", "MPEG transport stream video over RTP/SAVP"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(names_of(offered), words);
        }
    }
}
