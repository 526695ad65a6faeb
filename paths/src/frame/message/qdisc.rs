// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queueing disciplines of a device, from a dump of rtnetlink.
//!
//! A dump is requested because the query for one discipline does not reach the queues below a
//! default `mq`, whose handle is 0. The kernel has no filter by device, so those of other devices
//! are skipped here.
//!
//! Sources: `rtnetlink(7)`, `tc(8)`, `tc-etf(8)`; Linux 6.18
//! `include/uapi/linux/{rtnetlink,pkt_sched}.h`, `net/sched/sch_api.c` (`tc_dump_qdisc`).
//!
//! Does not interpret disciplines; [`crate::departure`] names those that respect departure times.

use super::{Attributes, ERROR, HEADER_BYTES, MALFORMED, Question, number};
use crate::error::Errno;

const DONE: u16 = 3;
/// `NLM_F_DUMP`.
const DUMP: u16 = 0x300;
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
/// `struct tcmsg`.
const BODY_BYTES: usize = 20;
/// `TCA_KIND`, `TCA_OPTIONS`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
/// `TCA_ETF_PARMS`: `struct tc_etf_qopt`.
const ETF_PARAMETERS: u16 = 1;
const ETF_DEADLINE_MODE: u32 = 1;

/// Parent of a device's first discipline: `TC_H_ROOT`.
pub(crate) const ROOT: u32 = 0xffff_ffff;
/// Parent of disciplines for incoming packets: `TC_H_INGRESS`, also that of `clsact`.
pub(crate) const INGRESS: u32 = 0xffff_fff1;

/// A queueing discipline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qdisc {
    pub(crate) kind: String,
    /// [`ROOT`], [`INGRESS`], or a class of another discipline.
    pub(crate) parent: u32,
    /// Parameters of one of kind `etf`.
    pub(crate) etf: Option<EtfParameters>,
}

/// Parameters of an `etf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EtfParameters {
    /// Time by which it wakes before a departure, in ns.
    pub(crate) delta_ns: i32,
    /// Number of its clock, as in `clock_gettime(2)`.
    pub(crate) clock: i32,
    pub(crate) is_deadline: bool,
}

/// Returns the query for the disciplines of all devices.
pub(crate) fn ask_qdiscs() -> Vec<u8> {
    Question::new(GET_QDISC, DUMP, &[0; BODY_BYTES]).done()
}

/// Adds the disciplines of `device` in one part of the answer to `list`, at most `most` in all;
/// true when it was the last part.
pub(crate) fn read_qdiscs(
    part: &[u8],
    device: u32,
    (list, most): (&mut Vec<Qdisc>, usize),
) -> Result<bool, Errno> {
    let mut rest = part;
    while !rest.is_empty() {
        let (header, _) = rest.split_first_chunk::<HEADER_BYTES>().ok_or(MALFORMED)?;
        let bytes = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let body = rest.get(HEADER_BYTES..bytes).ok_or(MALFORMED)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            DONE => return Ok(true),
            ERROR => {
                let code = body.first_chunk::<4>().ok_or(MALFORMED)?;
                return Err(Errno::new(i32::from_ne_bytes(*code).saturating_neg()));
            }
            NEW_QDISC if list.len() < most => list.extend(qdisc(body, device)?),
            _ => {}
        }
        rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Returns the discipline that a message describes, if it is one of `device`.
fn qdisc(message: &[u8], device: u32) -> Result<Option<Qdisc>, Errno> {
    let (body, attributes) = message.split_first_chunk::<BODY_BYTES>().ok_or(MALFORMED)?;
    if number(&body[4..8])? != device {
        return Ok(None);
    }
    let mut found = Qdisc { kind: String::new(), parent: number(&body[12..16])?, etf: None };
    let mut options: &[u8] = &[];
    for (kind, value) in Attributes(attributes) {
        match kind {
            KIND => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                found.kind = String::from_utf8_lossy(text).into_owned();
            }
            OPTIONS => options = value,
            _ => {}
        }
    }
    if found.kind == "etf" {
        let parameters = Attributes(options).find(|(kind, _)| *kind == ETF_PARAMETERS);
        let (_, value) = parameters.ok_or(MALFORMED)?;
        let word = |at: usize| number(value.get(at..at + 4).unwrap_or_default());
        found.etf = Some(EtfParameters {
            delta_ns: word(0)?.cast_signed(),
            clock: word(4)?.cast_signed(),
            is_deadline: word(8)? & ETF_DEADLINE_MODE != 0,
        });
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn described(device: u32, parent: u32, kind: &str, options: &[u8]) -> Vec<u8> {
        let mut body = vec![0; 4];
        for word in [device, 0x0001_0000, parent, 0] {
            body.extend(word.to_ne_bytes());
        }
        for (number, value) in [(KIND, [kind.as_bytes(), &[0]].concat()), (OPTIONS, options.into())]
        {
            body.extend(((4 + value.len()) as u16).to_ne_bytes());
            body.extend(number.to_ne_bytes());
            body.extend(&value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        message(NEW_QDISC, &body)
    }

    fn read(part: &[u8], device: u32) -> Result<(Vec<Qdisc>, bool), Errno> {
        let mut list = Vec::new();
        read_qdiscs(part, device, (&mut list, 4)).map(|done| (list, done))
    }

    #[test]
    fn disciplines_of_the_device_are_read_from_a_dump() {
        let mut etf = vec![16, 0, ETF_PARAMETERS as u8, 0];
        for word in [300_000_u32, 11, ETF_DEADLINE_MODE] {
            etf.extend(word.to_ne_bytes());
        }
        let mut part = described(1, ROOT, "noqueue", &[]);
        part.extend(described(2, ROOT, "mq", &[]));
        part.extend(described(2, 1, "fq", &[]));
        part.extend(described(2, 2, "etf", &etf));
        let (list, done) = read(&part, 2).unwrap();
        let found: Vec<_> = list.iter().map(|qdisc| (&*qdisc.kind, qdisc.parent)).collect();
        assert_eq!((found, done), (vec![("mq", ROOT), ("fq", 1), ("etf", 2)], false));
        let expected = EtfParameters { delta_ns: 300_000, clock: 11, is_deadline: true };
        assert_eq!(list[2].etf, Some(expected));
        assert_eq!(read(&message(DONE, &[0; 4]), 2), Ok((Vec::new(), true)));
        let refused = message(ERROR, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(read(&refused, 2), Err(Errno::new(libc::EPERM)));
    }

    #[test]
    fn a_dump_that_is_cut_or_wrong_is_read_to_an_end() {
        let part = described(2, ROOT, "etf", &[8, 0, 1, 0, 1, 2, 3, 4]);
        assert_eq!(read(&part, 2), Err(MALFORMED), "parameters that are cut");
        for end in 1..part.len() {
            assert!(read(&part[..end], 2).is_err(), "{end}");
        }
        for wrong in 0..part.len() {
            let mut changed = part.clone();
            changed[wrong] = 0xff;
            let _ = read(&changed, 2);
        }
        let many = described(2, 1, "fq", &[]).repeat(9);
        assert_eq!(read(&many, 2).unwrap().0.len(), 4, "as many as asked for");
    }
}
