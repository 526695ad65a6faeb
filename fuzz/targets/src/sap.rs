// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes SAP datagrams (`wire::sap`), reading and writing.
//!
//! Checked: a packet that was read can be written and is then read as the same; the deletion of any
//! description that was read is readable, and is no longer than the announcement.
//!
//! Sources: RFC 2974.

use wire::sap::{self, SapKind, SapPacket};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "sap", run };

fn run(data: &[u8]) {
    let Ok(packet) = SapPacket::parse(data) else { return };
    let written = packet.write();
    assert_eq!(SapPacket::parse(&written).as_ref(), Ok(&packet));
    let announced = sap::announcement(packet.source, packet.message_hash, packet.description);
    let deleted = sap::deletion(packet.source, packet.message_hash, packet.description);
    assert!(deleted.len() <= announced.len());
    let deletion = SapPacket::parse(&deleted).expect("our own packet");
    assert_eq!(deletion.kind, SapKind::Deletion);
    assert_ne!(sap::message_hash(packet.description, |hash| hash < 1000), 0);
}
