// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab cipher`: AES-CBC in memory on one core: lanes against one message at a time.
//!
//! CBC is serial within a message, so messages encrypted one by one run at the latency of the
//! cipher unit; lanes run at its throughput. The members are OpenSSL's EVP, one message at a time
//! with key and context reused (the reference), RustCrypto's `cbc` likewise, and every variant of
//! [`simd::cbc`] of this host; by size and number of messages, with one key for all and with a key
//! for each. Decryption is measured too; it is parallel within a message in any implementation.
//!
//! Messages are allocated one by one, as a program would, and encrypted in place. Every member must
//! first produce OpenSSL's bytes.
//!
//! Sources: the file-encryption paper (128 B to 4 MB, AES-128-CBC); NIST SP 800-38A.
//! Does not process files; `seal` does.

mod work;

use std::cell::RefCell;

use simd::Cbc;

use measure::Error;
use measure::Options;
use measure::memory::{Group, Member, Turns};
use measure::results::Results;
use measure::warning::Warning;

use work::{Method, Work};

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("cipher", options.command.clone());
    results.complete = true;
    let methods = methods(options)?;
    let cases = cases(options)?;
    results.notes.push(format!(
        "{}; openssl and cbc crate: one message after the other, context and expanded key kept, \
         the IV set anew; every member's bytes compared with OpenSSL's before it was timed",
        openssl::version::version()
    ));
    let mut turns = Turns::new(options, cases.len(), &mut results);
    for case in &cases {
        if options.stopped() {
            break;
        }
        case.measure(&methods, &mut turns, &mut results);
    }
    turns.finish(&mut results);
    Ok(results)
}

/// Messages encrypted together, or one message to decrypt.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    decrypts: bool,
    key_bytes: usize,
    /// True when each message has its own key.
    own_keys: bool,
    messages: usize,
    bytes: usize,
}

impl Case {
    fn measure(&self, methods: &[Method], turns: &mut Turns<'_>, results: &mut Results) {
        let work = RefCell::new(Work::new(self));
        let mut members = Vec::new();
        for method in methods {
            // A check before the clock; none of it is timed.
            match work.borrow_mut().verify(method) {
                Ok(()) => {}
                Err(found) => {
                    results.complete = false;
                    let member = format!("{}, {}", method.name(), self.title());
                    results.warn(Warning::MemberFailed { member, found });
                    continue;
                }
            }
            let (work, bytes) = (&work, (self.messages * self.bytes) as u64);
            let member = Member::new(method.name(), move || {
                work.borrow_mut().run(method);
                bytes
            });
            members.push(member.of_operations(self.messages as u64));
        }
        let group = Group { parameters: self.parameters(), reference: REFERENCE, members };
        turns.measure(&self.title(), group, results);
    }

    fn title(&self) -> String {
        let Case { decrypts, key_bytes, own_keys, messages, bytes } = self;
        let direction = if *decrypts { "decrypt" } else { "encrypt" };
        let keys = if *own_keys { ", own keys" } else { "" };
        format!("{direction} AES-{}, {messages} × {bytes} bytes{keys}", key_bytes * 8)
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let direction = if self.decrypts { "decrypt" } else { "encrypt" };
        let keys = if self.own_keys { "own" } else { "same" };
        vec![
            ("direction", direction.to_owned()),
            ("cipher", format!("AES-{}", self.key_bytes * 8)),
            ("keys", keys.to_owned()),
            ("messages", self.messages.to_string()),
            ("bytes", self.bytes.to_string()),
        ]
    }
}

/// Returns the selected methods; the reference is always included.
fn methods(options: &Options) -> Result<Vec<Method>, Error> {
    let mut methods = vec![Method::OpenSsl, Method::CbcCrate];
    methods.extend(Cbc::all().map(Method::Ours));
    let known: Vec<&str> = methods.iter().map(Method::name).collect();
    if let Some(other) = options.members.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::Caller {
            what: format!("member {other}"),
            found: format!("no such cipher here; write one of {}", known.join(", ")),
        });
    }
    methods.retain(|method| {
        let asked = options.members.iter().any(|name| name == method.name());
        options.members.is_empty() || asked || method.name() == REFERENCE
    });
    Ok(methods)
}

/// Returns the cases: encryption over sizes with as many messages as lanes, over numbers of
/// messages at the sizes of the bars, and decryption over sizes.
fn cases(options: &Options) -> Result<Vec<Case>, Error> {
    let asked: Vec<usize> = options.sizes.iter().map(|bytes| *bytes as usize).collect();
    if let Some(bytes) = asked.iter().find(|bytes| !bytes.is_multiple_of(simd::cbc::BLOCK_BYTES)) {
        return Err(Error::Caller {
            what: format!("size {bytes}"),
            found: format!("no whole blocks; write {}", bytes.next_multiple_of(16)),
        });
    }
    let sizes = |all: &[usize]| if asked.is_empty() { all.to_vec() } else { asked.clone() };
    let quick = options.quick;
    let key_sizes: &[usize] = if quick { &[16, 32] } else { &[16, 24, 32] };
    let counts: &[usize] = if quick { &[8, 16] } else { &[1, 2, 4, 8, 16, 32] };
    let mut cases = Vec::new();
    for &key_bytes in key_sizes {
        for own_keys in [false, true] {
            let case =
                |messages, bytes| Case { decrypts: false, key_bytes, own_keys, messages, bytes };
            let over_sizes = sizes(if quick { BAR_SIZES } else { SIZES });
            cases.extend(over_sizes.iter().map(|&bytes| case(simd::cbc::LANES, bytes)));
            for bytes in sizes(BAR_SIZES) {
                let counts = counts.iter().filter(|count| **count != simd::cbc::LANES);
                cases.extend(counts.map(|&count| case(count, bytes)));
            }
        }
        let decrypted = sizes(if quick { BAR_SIZES } else { SIZES })
            .into_iter()
            .map(|bytes| Case { decrypts: true, key_bytes, own_keys: false, messages: 1, bytes });
        cases.extend(decrypted);
    }
    Ok(cases)
}

/// Reference of the ratios.
const REFERENCE: &str = "openssl";
/// File sizes of the bars.
const BAR_SIZES: &[usize] = &[16 << 10, 1 << 20];
const SIZES: &[usize] =
    &[128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_case_is_measured_twice_and_sizes_are_those_asked_for() {
        for quick in [false, true] {
            for sizes in [vec![], vec![48, 4096]] {
                let options = Options { quick, sizes: sizes.clone(), ..Options::default() };
                let cases = cases(&options).unwrap();
                for (index, case) in cases.iter().enumerate() {
                    assert!(!cases[..index].contains(case), "{case:?}");
                    assert!(sizes.is_empty() || sizes.contains(&(case.bytes as u32)), "{case:?}");
                }
                assert!(cases.iter().any(|case| case.decrypts));
            }
        }
        let error = cases(&Options { sizes: vec![100], ..Options::default() }).unwrap_err();
        assert_eq!(error.to_string(), "size 100: no whole blocks; write 112");
    }

    #[test]
    fn the_reference_is_always_among_the_members() {
        let names = |members: &[&str]| {
            let members = members.iter().map(|name| (*name).to_owned()).collect();
            methods(&Options { members, ..Options::default() })
                .map(|methods| methods.iter().map(Method::name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["portable"]).unwrap(), ["openssl", "portable"]);
        assert!(names(&[]).unwrap().starts_with(&["openssl", "cbc crate", "portable"]));
        let error = names(&["rot13"]).unwrap_err().to_string();
        assert!(error.starts_with("member rot13: no such cipher here; write one of openssl, "));
    }

    #[test]
    fn every_member_is_verified_and_a_wrong_one_found() {
        for (decrypts, own_keys, messages) in
            [(false, false, 3), (false, true, 3), (true, false, 1)]
        {
            for key_bytes in [16, 24, 32] {
                let case = Case { decrypts, key_bytes, own_keys, messages, bytes: 80 };
                let mut work = Work::new(&case);
                for method in methods(&Options::default()).unwrap() {
                    assert_eq!(work.verify(&method), Ok(()), "{}, {case:?}", method.name());
                    // Earlier operations and their number do not matter.
                    work.run(&method);
                    assert_eq!(work.verify(&method), Ok(()), "{}, {case:?}", method.name());
                }
                work.spoil();
                let found = work.verify(&Method::OpenSsl).unwrap_err();
                assert_eq!(found, "message 0 differs from OpenSSL's from byte 0 on");
            }
        }
    }
}
