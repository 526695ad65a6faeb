// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256 fingerprint of a certificate.
//!
//! Sources: FIPS 180-4. OpenSSL, browsers and the pages of cameras show the same digest, of the
//! certificate in DER.
//! Does not read certificates.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// SHA-256 digest of a certificate in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFingerprint([u8; SHA256_OUTPUT_LEN]);

impl CertificateFingerprint {
    /// The fingerprint of a certificate in DER.
    pub(super) fn of(der: &[u8]) -> CertificateFingerprint {
        let digest = digest(&SHA256, der);
        CertificateFingerprint(digest.as_ref().try_into().expect("a digest has that length"))
    }
}

impl FromStr for CertificateFingerprint {
    type Err = String;

    /// Parses 64 hexadecimal digits of either case, with or without colons; a name of the digest in
    /// front (`SHA256:`, as `openssl x509 -fingerprint -sha256` has one with `=`) is left out.
    fn from_str(text: &str) -> Result<CertificateFingerprint, String> {
        let cure = "write the SHA-256 fingerprint of the certificate, 64 hexadecimal digits";
        let named = text.trim().rsplit_once('=').map_or(text.trim(), |(_, digits)| digits);
        let digits = match named.split_at_checked(DIGEST_NAME.len()) {
            Some((name, digits)) if name.eq_ignore_ascii_case(DIGEST_NAME) => digits,
            _ => named,
        };
        let digits: Vec<char> = digits.chars().filter(|c| *c != ':').collect();
        let value = |pair: &[char]| {
            let [high, low] = [pair[0].to_digit(16)?, pair[1].to_digit(16)?];
            u8::try_from(high * 16 + low).ok()
        };
        if digits.len() == SHA1_DIGITS && digits.iter().all(char::is_ascii_hexdigit) {
            return Err(format!("{text}: this is the length of SHA-1; {cure}"));
        }
        let bytes: Option<Vec<u8>> = match digits.len() == SHA256_OUTPUT_LEN * 2 {
            true => digits.chunks_exact(2).map(value).collect(),
            false => None,
        };
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(CertificateFingerprint).ok_or_else(|| format!("{text}: {cure}"))
    }
}

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let colon = if index > 0 { ":" } else { "" };
            write!(f, "{colon}{byte:02X}")?;
        }
        Ok(())
    }
}

const DIGEST_NAME: &str = "SHA256:";
const SHA1_DIGITS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_programs_write_them() {
        let made = CertificateFingerprint::of(b"abc");
        let shown = made.to_string();
        // The digest of "abc", FIPS 180-4's own example.
        assert!(shown.starts_with("BA:78:16:BF:8F:01:CF:EA:41:41:40:DE"), "{shown}");
        let plain = shown.replace(':', "").to_lowercase();
        for text in [
            shown.clone(),
            plain.clone(),
            format!("sha256 Fingerprint={shown}"),
            format!("SHA256:{plain}"),
            format!(" {shown}\n"),
        ] {
            assert_eq!(text.parse(), Ok(made), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "AA:BB", &"z".repeat(64), &"ä".repeat(64), &"a".repeat(66), "SHA256:"] {
            let fault = text.parse::<CertificateFingerprint>().unwrap_err();
            assert!(fault.ends_with("64 hexadecimal digits"), "{fault}");
        }
        let fault = "ab:".repeat(20).parse::<CertificateFingerprint>().unwrap_err();
        assert!(fault.contains("the length of SHA-1"), "{fault}");
    }
}
