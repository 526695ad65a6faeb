// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions and answers of Linux 6.18, and answers that are cut or wrong.
//!
//! Sources: captured in a network namespace with a veth pair and a route with a gateway and an MTU.
//!
//! Does not query the kernel. The contract tests do, with devices.

use super::*;

/// Returns the bytes of hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
}

const ROUTE_QUESTION: &str = "44000000 1a000100 01000000 00000000 02202000 00000000 00000000 \
    08000100 0a010203 08000200 0a630001 05001b00 11000000 06001c00 138c0000 06001d00 17740000";

/// Answer: 10.1.2.3 by way of 10.99.0.9 on device 3, MTU 1,400.
const ROUTE: &str = "7c000000 18000000 01000000 cb4f0000 02202000 fe000001 00020000 \
    08000f00 fe000000 08000100 0a010203 08000200 0a630001 08000400 03000000 08000500 0a630009 \
    0c000800 08000200 78050000 08001900 00000000 24000c00 02000000 00000000 00000000 00000000 \
    00000000 00000000 00000000 00000000";

/// Answer: a device's first attributes and its address.
const LINK: &str = "40000000 10000000 01000000 cb4f0000 00000100 03000000 43100100 00000000 \
    09000300 6c656674 00000000 08000400 dc050000 0a000100 02000000 00010000";

const NEIGHBOUR: &str = "4c000000 1c000000 01000000 cb4f0000 02000000 03000000 80000001 \
    08000100 0a630002 0a000200 02000000 00020000 08000400 00000000 14000300 00000000 00000000 \
    00000000 01000000";

/// Answer: ENETUNREACH.
const NO_ROUTE: &str = "24000000 02000000 01000000 cb4f0000 9bffffff 44000000 1a000100 01000000 \
    00000000";

#[cfg(target_endian = "little")]
#[test]
fn questions_and_answers_are_those_of_linux() {
    let (source, target) = ("10.99.0.1:5004", "10.1.2.3:6004");
    let question = ask_route(source.parse().unwrap(), target.parse().unwrap());
    assert_eq!(question, hex(ROUTE_QUESTION));
    let gateway = Some([10, 99, 0, 9].into());
    let expected = Route { kind: 1, device: 3, gateway, is_wrapped: false, mtu: Some(1400) };
    assert_eq!(route(&hex(ROUTE)), Ok(expected));
    let name = "left".to_string();
    let address = Some([2, 0, 0, 0, 0, 1]);
    let (kind, is_up, is_silent, is_virtual, mtu) = (1, true, false, false, 1500);
    let expected = Link { name, kind, is_up, is_silent, is_virtual, address, mtu };
    assert_eq!(link(&hex(LINK)), Ok(expected));
    let silent = link(&hex(&LINK.replace("43100100", "c3100100"))).unwrap();
    assert!(silent.is_silent && silent.is_up);
    let address = Some([2, 0, 0, 0, 0, 2]);
    assert_eq!(neighbour(&hex(NEIGHBOUR)), Ok(Neighbour { state: 0x80, address }));
    assert_eq!(route(&hex(NO_ROUTE)), Err(Errno::new(libc::ENETUNREACH)));
    assert_eq!(neighbour(&hex(NO_ROUTE)), Err(Errno::new(libc::ENETUNREACH)));
}

/// Any bytes produce an answer or an error, and no read past their end.
#[test]
fn answers_that_are_cut_or_wrong_are_errors() {
    for answer in [ROUTE, LINK, NEIGHBOUR, NO_ROUTE].map(hex) {
        for bytes in 0..answer.len() {
            let cut = &answer[..bytes];
            assert!(route(cut).is_err() && link(cut).is_err() && neighbour(cut).is_err());
        }
        for at in 0..answer.len() {
            for value in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                let mut wrong = answer.clone();
                wrong[at] = value;
                let _ = (route(&wrong), link(&wrong), neighbour(&wrong));
            }
        }
    }
    assert_eq!(link(&hex(ROUTE)), Err(MALFORMED));
}

#[cfg(target_endian = "little")]
#[test]
fn tunnels_and_gateways_of_ipv6_are_told_from_plain_routes() {
    for attribute in ["04001200", "04001600"] {
        let text = ROUTE.replace("7c000000", "80000000");
        let answer = hex(&format!("{text} {attribute}"));
        assert!(route(&answer).unwrap().is_wrapped, "{attribute}");
    }
}
