// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why the signature of a licence is not trusted.

/// The reason why a licence's signature is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// The licence lacks this member of `signature`.
    #[error("no signature/{0}")]
    Missing(&'static str),
    /// This member of `signature` is not Base64.
    #[error("signature/{0} is no Base64")]
    Base64(&'static str),
    /// `signature/certificate` is not an X.509 certificate in DER.
    #[error("signature/certificate is no certificate")]
    Certificate,
    /// The certificate has no public key.
    #[error("the certificate has no key")]
    NoKey,
    /// The algorithm named does not fit the certificate's key.
    #[error("signed by {0:?}, which is not the certificate's")]
    Algorithm(String),
    /// The signature does not match the licence.
    #[error("its signature does not match: it was changed after it was signed")]
    Changed,
    /// `issued` is not a date.
    #[error("issued is no date")]
    Issued,
    /// The certificate was not valid at the date of issue.
    #[error("the provider's certificate was not valid when it was issued")]
    Expired,
    /// The certificate is not signed by a given root.
    #[error("the provider's certificate is not signed by the given root")]
    Root,
}
