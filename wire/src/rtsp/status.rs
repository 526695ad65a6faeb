// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status codes of the server's answers, and their reason phrases.
//!
//! Only the codes that this crate or the server uses: a client treats an unknown code as the x00 of
//! its class (RFC 2326 §7.1.1), so there is no complete table.
//!
//! Sources: RFC 2326 §7.1.1, §11.3.

/// A status code of RFC 2326 §7.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// 200
    Ok,
    /// 400: the request cannot be understood.
    BadRequest,
    /// 401: credentials are needed; sent with WWW-Authenticate.
    Unauthorized,
    /// 403: understood and not done, for example media to an address that is not the client's.
    Forbidden,
    /// 404: no such asset.
    NotFound,
    /// 405: a method of RTSP that this resource does not support; sent with Allow.
    MethodNotAllowed,
    /// 406: the client does not accept application/sdp.
    NotAcceptable,
    /// 408: the request was not completed in time.
    RequestTimeOut,
    /// 413: the body is over the limit.
    RequestEntityTooLarge,
    /// 414: the request line is over the limit.
    RequestUriTooLarge,
    /// 415: the asset is a file that cannot be streamed.
    UnsupportedMediaType,
    /// 451: a parameter was requested, and there are none.
    ParameterNotUnderstood,
    /// 453: the limit on sessions is reached.
    NotEnoughBandwidth,
    /// 454: no such session, or not one of this client's, or timed out.
    SessionNotFound,
    /// 455: not valid in this state; sent with Allow.
    MethodNotValidInThisState,
    /// 456: a header that cannot be acted on.
    HeaderFieldNotValidForResource,
    /// 457: a range out of bounds, or one without a start.
    InvalidRange,
    /// 459: a second stream cannot join this session.
    AggregateOperationNotAllowed,
    /// 460: only for the presentation as a whole.
    OnlyAggregateOperationAllowed,
    /// 461: no acceptable transport in the list.
    UnsupportedTransport,
    /// 462: the client's address cannot be reached.
    DestinationUnreachable,
    /// 500
    InternalServerError,
    /// 501: a method or a time format that is not supported here.
    NotImplemented,
    /// 503: out of sessions, descriptors or time.
    ServiceUnavailable,
    /// 505: not RTSP/1.0.
    VersionNotSupported,
    /// 551: a feature in Require; sent with Unsupported.
    OptionNotSupported,
}

impl Status {
    /// Every member.
    pub const ALL: &[Status] = &[
        Status::Ok,
        Status::BadRequest,
        Status::Unauthorized,
        Status::Forbidden,
        Status::NotFound,
        Status::MethodNotAllowed,
        Status::NotAcceptable,
        Status::RequestTimeOut,
        Status::RequestEntityTooLarge,
        Status::RequestUriTooLarge,
        Status::UnsupportedMediaType,
        Status::ParameterNotUnderstood,
        Status::NotEnoughBandwidth,
        Status::SessionNotFound,
        Status::MethodNotValidInThisState,
        Status::HeaderFieldNotValidForResource,
        Status::InvalidRange,
        Status::AggregateOperationNotAllowed,
        Status::OnlyAggregateOperationAllowed,
        Status::UnsupportedTransport,
        Status::DestinationUnreachable,
        Status::InternalServerError,
        Status::NotImplemented,
        Status::ServiceUnavailable,
        Status::VersionNotSupported,
        Status::OptionNotSupported,
    ];

    /// The number.
    pub fn code(self) -> u16 {
        self.row().0
    }

    /// Reason phrase of the status.
    pub fn reason(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (u16, &'static str) {
        match self {
            Status::Ok => (200, "OK"),
            Status::BadRequest => (400, "Bad Request"),
            Status::Unauthorized => (401, "Unauthorized"),
            Status::Forbidden => (403, "Forbidden"),
            Status::NotFound => (404, "Not Found"),
            Status::MethodNotAllowed => (405, "Method Not Allowed"),
            Status::NotAcceptable => (406, "Not Acceptable"),
            Status::RequestTimeOut => (408, "Request Time-out"),
            Status::RequestEntityTooLarge => (413, "Request Entity Too Large"),
            Status::RequestUriTooLarge => (414, "Request-URI Too Large"),
            Status::UnsupportedMediaType => (415, "Unsupported Media Type"),
            Status::ParameterNotUnderstood => (451, "Parameter Not Understood"),
            Status::NotEnoughBandwidth => (453, "Not Enough Bandwidth"),
            Status::SessionNotFound => (454, "Session Not Found"),
            Status::MethodNotValidInThisState => (455, "Method Not Valid in This State"),
            Status::HeaderFieldNotValidForResource => (456, "Header Field Not Valid for Resource"),
            Status::InvalidRange => (457, "Invalid Range"),
            Status::AggregateOperationNotAllowed => (459, "Aggregate Operation Not Allowed"),
            Status::OnlyAggregateOperationAllowed => (460, "Only Aggregate Operation Allowed"),
            Status::UnsupportedTransport => (461, "Unsupported Transport"),
            Status::DestinationUnreachable => (462, "Destination Unreachable"),
            Status::InternalServerError => (500, "Internal Server Error"),
            Status::NotImplemented => (501, "Not Implemented"),
            Status::ServiceUnavailable => (503, "Service Unavailable"),
            Status::VersionNotSupported => (505, "RTSP Version Not Supported"),
            Status::OptionNotSupported => (551, "Option Not Supported"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_none_is_there_twice() {
        assert!(Status::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    // An independent list: rtsp-types has the codes of RFC 7826 by name.
    #[test]
    fn codes_are_those_that_rtsp_types_knows() {
        for status in Status::ALL {
            let known = rtsp_types::StatusCode::from(status.code());
            let name = format!("{known:?}");
            // RFC 7826 took 451 to 462 over from RFC 2326 and dropped none that is used here.
            assert!(!name.starts_with("Extension"), "{} is {name}", status.code());
        }
    }
}
