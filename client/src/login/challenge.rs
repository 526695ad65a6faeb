// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the challenges of a 401 reply and chooses the strongest one that can be answered.
//!
//! The crate `http-auth` parses the list. It accepts ASCII alone, and cameras have names in other
//! letters: other bytes are masked for it, and put back afterwards. It accepts one space behind
//! the name of a scheme, where RFC 7235 allows several. Behind a fault in the list, such as a
//! challenge of a form of its own, the next challenge of Digest is looked for.
//!
//! Sources: RFC 7235 §4.1, RFC 7616 §3.3, §3.7; RFC 2069 §2.1.1; RFC 7617 §2.

use http_auth::parser::ChallengeParser;
use http_auth::{ChallengeRef, ParamValue};

use super::digest::{DigestChallenge, DigestHash};
use crate::one_line;

/// A challenge that can be answered.
#[derive(Debug)]
pub(super) enum Challenge {
    Basic,
    Digest(DigestChallenge),
}

/// Reason why no challenge of a reply can be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChallengeFault {
    /// The reply has no challenge.
    #[error("it names no way to log in (WWW-Authenticate)")]
    Absent,
    /// Basic is the only challenge that is supported, and is not allowed.
    #[error(
        "it asks for the password in clear text (Basic){or_by}, which everybody on the way can \
         read; with --allow-basic it is sent"
    )]
    BasicAlone {
        /// Other challenges, which are not supported: empty, or ` or for a login by …`.
        or_by: String,
    },
    /// A user for Basic contains a colon, which would end it (RFC 7617 §2).
    #[error("it asks for Basic, which cannot send a user with a colon; write another user")]
    BasicUser,
    /// The challenges that were found are not supported.
    #[error(
        "it asks for a login by {0}; supported are Digest (MD5, SHA-256 and SHA-512-256, with \
         qop=auth or without) and Basic"
    )]
    Unsupported(String),
    /// The field cannot be read.
    #[error("its challenge cannot be read: {0}")]
    Malformed(String),
}

/// Chooses from the value of WWW-Authenticate. Several fields are joined by commas.
pub(super) fn choose(field: &str, allows_basic: bool) -> Result<Challenge, ChallengeFault> {
    if field.len() > FIELD_BYTES_MAX {
        let found = format!("{} bytes, and {FIELD_BYTES_MAX} are the most", field.len());
        return Err(ChallengeFault::Malformed(found));
    }
    if field.contains(char::REPLACEMENT_CHARACTER) {
        // Its hash would be wrong, and count as a wrong password.
        return Err(ChallengeFault::Malformed("it is not UTF-8".to_owned()));
    }
    let field = &*single_spaced(field);
    let masked: String =
        field.bytes().map(|byte| if byte.is_ascii() { char::from(byte) } else { MASK }).collect();
    let list = ChallengeList { field, masked: &masked };
    let (mut best, mut has_basic, mut unsupported) = (None::<DigestChallenge>, false, Vec::new());
    for challenge in list.challenges() {
        if challenge.scheme.eq_ignore_ascii_case("Basic") {
            has_basic = true;
        } else if !challenge.scheme.eq_ignore_ascii_case("Digest") {
            unsupported.push(challenge.scheme.to_owned());
        } else {
            match list.digest(&challenge) {
                Ok(found) if best.as_ref().is_none_or(|best| best.hash < found.hash) => {
                    best = Some(found);
                }
                Ok(_) => {}
                Err(name) => unsupported.push(name),
            }
        }
    }
    match best {
        Some(digest) => Ok(Challenge::Digest(digest)),
        None if has_basic && allows_basic => Ok(Challenge::Basic),
        None if has_basic => {
            let or_by = match unsupported.is_empty() {
                true => String::new(),
                false => format!(" or for a login by {}", shown(&unsupported)),
            };
            Err(ChallengeFault::BasicAlone { or_by })
        }
        None if !unsupported.is_empty() => Err(ChallengeFault::Unsupported(shown(&unsupported))),
        None if field.trim().is_empty() => Err(ChallengeFault::Absent),
        None => Err(ChallengeFault::Malformed(one_line(field, CHARS_SHOWN))),
    }
}

/// The same list with one space for several between its words.
fn single_spaced(field: &str) -> String {
    let (mut is_quoted, mut is_escaped, mut before) = (false, false, None);
    let mut keep = |c: char| {
        let is_space = |c: char| c == ' ' || c == '\t';
        let is_kept = is_quoted || !(is_space(c) && before.is_some_and(is_space));
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = is_quoted && c == '\\' && !is_escaped;
        before = Some(c);
        is_kept
    };
    field.chars().filter(|c| keep(*c)).collect()
}

fn shown(names: &[String]) -> String {
    one_line(&names.join(", "), CHARS_SHOWN)
}

/// A list of challenges, and its ASCII form of equal length.
struct ChallengeList<'a> {
    field: &'a str,
    masked: &'a str,
}

impl<'a> ChallengeList<'a> {
    /// The challenges that can be read.
    fn challenges(&self) -> Vec<ChallengeRef<'a>> {
        let mut found = Vec::new();
        let mut starts =
            self.masked.match_indices(DIGEST).map(|(at, _)| at).skip_while(|at| *at == 0);
        let mut start = Some(0);
        while let Some(at) = start {
            let mut is_whole = true;
            for challenge in ChallengeParser::new(&self.masked[at..]) {
                match challenge {
                    Ok(challenge) => found.push(challenge),
                    Err(_) => is_whole = false,
                }
            }
            start = if is_whole { None } else { starts.next() };
        }
        found
    }

    /// Reads a challenge of Digest. `Err` has a name for what is not supported.
    fn digest(&self, challenge: &ChallengeRef<'_>) -> Result<DigestChallenge, String> {
        let param = |name: &str| {
            let mut params = challenge.params.iter();
            params.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        };
        let flag = |name: &str| {
            param(name).is_some_and(|value| value.as_escaped().eq_ignore_ascii_case("true"))
        };
        let algorithm = param("algorithm").map(ParamValue::to_unescaped);
        let name = algorithm.as_deref().unwrap_or("MD5");
        let (name, is_session) = match name.len().checked_sub(SESSION.len()) {
            Some(at) if name.is_char_boundary(at) && name[at..].eq_ignore_ascii_case(SESSION) => {
                (&name[..at], true)
            }
            _ => (name, false),
        };
        let Some(hash) = DigestHash::of_name(name) else {
            return Err(format!("Digest of {name}"));
        };
        let qop = param("qop").map(ParamValue::to_unescaped);
        let mut offered = qop.iter().flat_map(|offered| offered.split(',')).map(str::trim);
        let counts = offered.any(|value| value.eq_ignore_ascii_case("auth"));
        if let Some(qop) = qop.filter(|_| !counts) {
            return Err(format!("Digest of qop={qop}"));
        }
        let Some(nonce) = param("nonce") else { return Err("Digest without a nonce".to_owned()) };
        Ok(DigestChallenge {
            hash,
            is_session,
            algorithm,
            realm: param("realm").map_or_else(String::new, |value| self.original(value)),
            nonce: self.original(nonce),
            opaque: param("opaque").map(|value| self.original(value)),
            counts,
            is_stale: flag("stale"),
            hashes_user: flag("userhash"),
        })
    }

    /// The characters of a value before they were masked, escapes as they are.
    fn original(&self, value: &ParamValue<'_>) -> String {
        let masked = value.as_escaped();
        let at = masked.as_ptr() as usize - self.masked.as_ptr() as usize;
        self.field[at..at + masked.len()].to_owned()
    }
}

const DIGEST: &str = "Digest ";
const SESSION: &str = "-sess";
const MASK: char = 'x';
/// Half of what a reply may have in all its fields.
const FIELD_BYTES_MAX: usize = 8 << 10;
const CHARS_SHOWN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(field: &str) -> DigestChallenge {
        match choose(field, false) {
            Ok(Challenge::Digest(digest)) => digest,
            other => panic!("{field}: {other:?}"),
        }
    }

    #[test]
    fn the_strongest_challenge_is_chosen() {
        let md5 = "Digest realm=\"a\", nonce=\"1\"";
        let sha = "Digest realm=\"b\", nonce=\"2\", algorithm=SHA-256, qop=\"auth-int, auth\"";
        let basic = "Basic realm=\"c\"";
        for field in [
            [basic, md5, sha].join(", "),
            [sha, md5, basic].join(","),
            format!("Bearer realm=\"d\", {md5} , {sha}"),
        ] {
            let chosen = digest(&field);
            assert_eq!((chosen.hash, chosen.nonce.as_str()), (DigestHash::Sha256, "2"), "{field}");
            assert!(chosen.counts);
        }
        let chosen = digest(&[basic, md5].join(", "));
        assert_eq!((chosen.hash, chosen.counts), (DigestHash::Md5, false));
    }

    #[test]
    fn challenges_of_cameras_are_read() {
        for field in [
            "Digest realm=\"IP Camera(12345)\", nonce=\"8bf2a1\", stale=\"FALSE\"",
            "digest realm=\"LIVE555 Streaming Media\",nonce=\"0e\" , algorithm=\"MD5\"",
            "Digest realm=\"Login to 9f\", nonce=\"8bf2a1\",, stale=FALSE, x=y",
            "Digest nonce=\"8bf2a1\", realm=\"a\", broken",
            "Digest  realm=\"a\",  nonce=\"8bf2a1\"",
            "Negotiate abcd==, Basic realm=IP Camera x, Digest realm=\"a\", nonce=\"8bf2a1\"",
        ] {
            let found = digest(field);
            assert!(!found.is_stale && !found.nonce.is_empty(), "{field}");
        }
        let other = digest("Digest realm=\"Überwachung Höhe\", nonce=\"n\", opaque=\"ö\"");
        assert_eq!(other.realm, "Überwachung Höhe");
        assert_eq!(other.opaque.as_deref(), Some("ö"));
        let spaces = digest("Digest \t realm=\"a  \\\"  b\", nonce=\"n\"");
        assert_eq!(spaces.realm, "a  \\\"  b");
        let session = digest("Digest realm=\"a\", nonce=\"n\", algorithm=sha-512-256-SESS");
        assert_eq!((session.hash, session.is_session), (DigestHash::Sha512_256, true));
    }

    #[test]
    fn what_cannot_be_answered_is_named() {
        let long = format!("Digest realm=\"a\", nonce=\"{}\"", "n".repeat(FIELD_BYTES_MAX));
        for (field, found) in [
            ("", "it names no way to log in"),
            ("Basic realm=\"a\"", "it asks for the password in clear text (Basic)"),
            ("Basic realm=\"a\", NTLM", "text (Basic) or for a login by NTLM, which everybody"),
            ("Digest realm=\"\u{fffd}\", nonce=\"n\"", "cannot be read: it is not UTF-8"),
            ("NTLM, Negotiate", "it asks for a login by NTLM, Negotiate; supported are Digest"),
            ("Digest realm=\"a\", nonce=\"n\", algorithm=TIGER", "a login by Digest of TIGER;"),
            ("Digest realm=\"a\", nonce=\"n\", qop=\"auth-int\"", "by Digest of qop=auth-int;"),
            ("Digest realm=\"a\"", "by Digest without a nonce;"),
            ("\"\u{1b}[2J", "its challenge cannot be read: \" [2J"),
            (&long, "bytes, and 8192 are the most"),
        ] {
            let text = choose(field, false).unwrap_err().to_string();
            assert!(text.contains(found), "{field:.60}: {text}");
        }
    }

    #[test]
    fn damaged_challenges_are_read_or_refused() {
        let whole =
            "Basic realm=\"ö\", Digest realm=\"a\\\"ü\", nonce=ñ, opaque=\"\\é\", qop=\"auth\"";
        let pieces = ["\"", "\\", ",", "=", "ö", " ", "\u{0}", "Digest ", "nonce", "-sess", ""];
        let mut state = 1_u32;
        let mut random = |most: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % most
        };
        let mut answered = 0;
        for _ in 0..20_000 {
            let mut letters: Vec<String> = whole.chars().map(String::from).collect();
            for _ in 0..=random(4) {
                let at = random(letters.len());
                letters[at] = pieces[random(pieces.len())].to_owned();
            }
            answered += u32::from(choose(&letters.concat(), true).is_ok());
        }
        assert!((1..20_000).contains(&answered), "{answered} answered");
    }
}
