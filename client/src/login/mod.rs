// SPDX-License-Identifier: MIT OR Apache-2.0
//! Login at an RTSP server: the credentials of the user, and the answers to the challenges (401)
//! of one connection.
//!
//! No request carries an answer before the server has sent a challenge. From then on every request
//! does, so that a challenge costs one round trip a connection. A password that the server refuses
//! is sent once: cameras lock an account after a few failures. The same request is repeated only
//! where the nonce is at fault: `stale=true`, or another nonce from a server that has accepted the
//! password before (nonces for one request each), and twice at most.
//!
//! Digest is preferred to Basic, and SHA-256 to MD5. Basic shows the password to everybody on the
//! way, and is answered only where [`ClientLogin::allows_basic`] is set.
//!
//! Credentials are for one server, the one of the URL that the user gave: a redirection to another
//! host or port carries none (`rtsp_connection`).
//!
//! Sources: RFC 2326 §14, RFC 7235 §2.1, §4.1; RFC 7616 §3.3 to §3.5; RFC 7617.
//! Does not log in at proxies (407), and does not verify the server (Authentication-Info).

mod challenge;
mod credentials;
mod digest;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use self::challenge::Challenge;
use self::digest::DigestAnswers;

pub use self::challenge::ChallengeFault;
pub use self::credentials::{
    InvalidUserinfo, UserCredentials, Userinfo, rtsp_server, split_userinfo,
};

/// Login of a client at one server: its answers to challenges.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientLogin {
    /// User and password; without, a challenge ends the session.
    pub credentials: Option<UserCredentials>,
    /// Answers Basic, too.
    pub allows_basic: bool,
}

impl ClientLogin {
    /// A login with these credentials, by Digest alone.
    pub fn new(credentials: Option<UserCredentials>) -> ClientLogin {
        ClientLogin { credentials, allows_basic: false }
    }
}

/// Reason why a challenge is not answered, or an answer was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginRefusal {
    /// No credentials were given for this server.
    #[error(
        "it asks for a user and a password, and none were given for this server: write \
         rtsp://USER:PASSWORD@HOST/PATH, or a line for it in a file of --credentials"
    )]
    NoCredentials,
    /// The server refused the credentials.
    #[error("wrong user or password")]
    WrongPassword,
    /// The server found a nonce stale again and again.
    #[error("it refuses each answer to its challenges as stale")]
    Stale,
    /// The challenge cannot be answered.
    #[error("{0}")]
    Challenge(ChallengeFault),
}

/// Login of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLogin {
    login: ClientLogin,
    /// Answers to the last challenge.
    answers: Option<Answers>,
    /// The server has granted a request that carried an answer.
    is_accepted: bool,
    /// The server has refused the password, which is not sent again.
    is_refused: bool,
}

#[derive(Debug)]
enum Answers {
    Basic,
    Digest(Box<DigestAnswers>),
}

impl ConnectionLogin {
    pub(crate) fn new(login: ClientLogin) -> ConnectionLogin {
        ConnectionLogin { login, answers: None, is_accepted: false, is_refused: false }
    }

    /// Adds the Authorization field to a request without a body, if the server has sent a
    /// challenge.
    pub(crate) fn authorize(&mut self, request: &[u8]) -> Vec<u8> {
        let mut authorized = request.to_vec();
        let Some((answers, credentials)) =
            self.answers.as_mut().zip(self.login.credentials.as_ref())
        else {
            return authorized;
        };
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = str::from_utf8(line).unwrap_or_default();
        let mut words = line.split(' ');
        let (method, uri) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let value = match answers {
            Answers::Basic => basic(credentials),
            Answers::Digest(answers) => answers.next(credentials, method, uri),
        };
        // In place of the empty line that ends the request.
        authorized.truncate(request.len() - LINE_END.len());
        authorized.extend_from_slice(format!("Authorization: {value}\r\n\r\n").as_bytes());
        authorized
    }

    /// Notes that the server granted a request.
    pub(crate) fn note_granted(&mut self) {
        self.is_accepted |= self.answers.is_some();
    }

    /// Accepts the WWW-Authenticate field of a 401 reply: the next request will carry an answer to
    /// it. Several fields are joined by commas.
    ///
    /// # Errors
    /// A challenge that cannot be answered, or that refuses the last answer: no request carries an
    /// answer from then on.
    pub(crate) fn accept_challenge(&mut self, field: Option<&str>) -> Result<(), LoginRefusal> {
        if self.login.credentials.is_none() {
            return Err(LoginRefusal::NoCredentials);
        }
        let challenge = challenge::choose(field.unwrap_or_default(), self.login.allows_basic);
        let is_first = self.answers.is_none() && !self.is_refused;
        let challenge = match challenge {
            Err(fault) if is_first => return Err(LoginRefusal::Challenge(fault)),
            Ok(challenge) if is_first || self.is_retried(&challenge) => challenge,
            _ => {
                (self.answers, self.is_refused) = (None, true);
                return Err(LoginRefusal::WrongPassword);
            }
        };
        self.answers = Some(match challenge {
            Challenge::Basic => Answers::Basic,
            Challenge::Digest(challenge) => {
                Answers::Digest(Box::new(DigestAnswers::new(challenge)))
            }
        });
        Ok(())
    }

    /// True if a challenge to a request with an answer only concerns its nonce.
    fn is_retried(&self, challenge: &Challenge) -> bool {
        let (Challenge::Digest(challenge), Some(Answers::Digest(before))) =
            (challenge, &self.answers)
        else {
            return false;
        };
        challenge.is_stale || self.is_accepted && before.nonce() != challenge.nonce
    }
}

/// RFC 7617 §2.
fn basic(credentials: &UserCredentials) -> String {
    let pair = zeroize::Zeroizing::new(format!("{}:{}", credentials.user, credentials.password()));
    format!("Basic {}", STANDARD.encode(pair.as_bytes()))
}

/// Answers to challenges of one request: to the first, and to two of stale nonces.
pub(crate) const ANSWERS_MAX: u32 = 3;
const LINE_END: &str = "\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"DESCRIBE rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\n\r\n";

    fn login(allows_basic: bool) -> ConnectionLogin {
        let credentials = UserCredentials::new("anna", "p@ss:word").unwrap();
        ConnectionLogin::new(ClientLogin { credentials: Some(credentials), allows_basic })
    }

    fn digest(nonce: &str, more: &str) -> String {
        format!("Digest realm=\"r\", nonce=\"{nonce}\", qop=\"auth\"{more}")
    }

    fn authorized(login: &mut ConnectionLogin) -> String {
        String::from_utf8(login.authorize(REQUEST)).unwrap()
    }

    #[test]
    fn a_request_has_no_answer_before_a_challenge_and_one_answer_after() {
        let mut login = login(false);
        assert_eq!(login.authorize(REQUEST), REQUEST);
        login.accept_challenge(Some(&digest("n", ""))).unwrap();
        for count in ["00000001", "00000002"] {
            let text = authorized(&mut login);
            assert!(text.starts_with("DESCRIBE rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\nAuthorization: "));
            assert!(text.ends_with("\r\n\r\n") && text.matches("\r\n\r\n").count() == 1, "{text}");
            assert!(text.contains(&format!("nc={count}")), "{text}");
            assert!(!text.contains("p@ss"), "{text}");
        }
    }

    #[test]
    fn a_wrong_password_is_answered_once() {
        let mut refused = login(false);
        refused.accept_challenge(Some(&digest("n", ""))).unwrap();
        for again in [Some(digest("n", "")), Some(digest("m", ", stale=false")), None] {
            let found = refused.accept_challenge(again.as_deref());
            assert_eq!(found, Err(LoginRefusal::WrongPassword), "{again:?}");
            assert_eq!(refused.authorize(REQUEST), REQUEST, "it is not sent again");
        }
    }

    #[test]
    fn stale_nonces_are_renewed_and_so_are_others_once_the_password_was_right() {
        let mut login = login(false);
        login.accept_challenge(Some(&digest("n", ""))).unwrap();
        login.accept_challenge(Some(&digest("m", ", stale=TRUE"))).unwrap();
        assert!(authorized(&mut login).contains("nonce=\"m\""));
        login.note_granted();
        login.accept_challenge(Some(&digest("o", ""))).unwrap();
        assert!(authorized(&mut login).contains("nonce=\"o\""));
        let same = login.accept_challenge(Some(&digest("o", "")));
        assert_eq!(same, Err(LoginRefusal::WrongPassword));
    }

    #[test]
    fn basic_is_answered_where_that_is_allowed_and_where_there_is_no_digest() {
        let mut refused = login(false);
        let found = refused.accept_challenge(Some("Basic realm=\"r\"")).unwrap_err();
        assert_eq!(found, LoginRefusal::Challenge(ChallengeFault::BasicAlone));
        assert_eq!(refused.authorize(REQUEST), REQUEST);
        let mut allowed = login(true);
        allowed.accept_challenge(Some("Basic realm=\"r\"")).unwrap();
        assert!(authorized(&mut allowed).contains("Authorization: Basic YW5uYTpwQHNzOndvcmQ=\r\n"));
        let again = allowed.accept_challenge(Some("Basic realm=\"r\""));
        assert_eq!(again, Err(LoginRefusal::WrongPassword));
        let mut both = login(true);
        both.accept_challenge(Some(&format!("Basic realm=\"r\", {}", digest("n", "")))).unwrap();
        assert!(authorized(&mut both).contains("Authorization: Digest "));
    }

    #[test]
    fn without_credentials_a_challenge_is_refused() {
        let mut nobody = ConnectionLogin::new(ClientLogin::default());
        let found = nobody.accept_challenge(Some(&digest("n", "")));
        assert_eq!(found, Err(LoginRefusal::NoCredentials));
    }
}
