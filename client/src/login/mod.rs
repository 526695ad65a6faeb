// SPDX-License-Identifier: MIT OR Apache-2.0
//! Login at an RTSP server: the credentials of the user, and the answers to the challenges (401)
//! of one connection.
//!
//! No request carries an answer before the server has sent a challenge. From then on every request
//! does, so that a challenge costs one round trip a connection.
//!
//! Cameras lock an account after a few wrong passwords. So a password that a server refuses is sent
//! once: all connections with clones of one [`ClientLogin`] wait for the first answer (no longer
//! than [`TURN_WAIT`]), and send none for [`LOGIN_WAIT`] where it was refused. Once it was
//! accepted, some refusals in a row are taken for a lack of rights to a stream. The same request is
//! repeated only where the nonce is at fault: `stale=true`, twice in a row at most, or another
//! nonce from a server that has accepted the password on this connection (nonces for one request
//! each), once.
//!
//! Digest is preferred to Basic, and SHA-256 to MD5. Basic shows the password to everybody on the
//! way, and is answered over TLS, else only where [`ClientLogin::allows_basic`] is set.
//!
//! Credentials are for one server, the one of the URL that the user gave: a redirection to another
//! host or port carries none (`rtsp_connection`).
//!
//! Sources: RFC 2326 §14, RFC 7235 §2.1, §4.1; RFC 7616 §3.3 to §3.5; RFC 7617.
//! Does not log in at proxies (407), and does not verify the server (Authentication-Info).

mod challenge;
mod credentials;
mod digest;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;
use zeroize::Zeroizing;

use self::challenge::Challenge;
use self::digest::DigestAnswers;
use self::shared::{Known, SharedLogin};
use super::tls::ServerTrust;

pub use self::challenge::ChallengeFault;
pub use self::credentials::{
    InvalidUserinfo, RtspServer, UserCredentials, Userinfo, rtsp_server, split_userinfo,
};
pub use self::shared::LOGIN_WAIT;

/// User and password for one server, and the ways in which they may be sent. Clones share the
/// knowledge whether the server accepts them.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ClientLogin {
    /// User and password; without, a challenge ends the session.
    pub credentials: Option<UserCredentials>,
    /// Answers Basic, too, which over TLS is always answered.
    pub allows_basic: bool,
    /// Trust in the server of an `rtsps:` URL; `None` is that in the authorities of the system.
    pub trust: Option<ServerTrust>,
    is_redirected: bool,
    shared: Arc<SharedLogin>,
}

impl ClientLogin {
    /// A login with these credentials, by Digest alone.
    pub fn new(credentials: Option<UserCredentials>) -> ClientLogin {
        ClientLogin { credentials, ..ClientLogin::default() }
    }

    /// True if both share the knowledge whether the server accepts the password.
    pub fn is_shared_with(&self, other: &ClientLogin) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The login for another server, to which the one of the URL has redirected.
    pub(crate) fn redirected(&self) -> ClientLogin {
        let trust = self.trust.clone();
        ClientLogin { is_redirected: true, trust, ..ClientLogin::default() }
    }
}

/// Reason why a challenge is not answered, or an answer was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginRefusal {
    /// No credentials were given for this server.
    #[error(
        "it asks for a user and a password, and none were given for this server: write \
         USER:PASSWORD@ in front of the host, or a line for it in a file of --credentials"
    )]
    NoCredentials,
    /// The server is not the one of the URL.
    #[error(
        "it asks for a password, and is not the server of the address, which redirected here: \
         credentials are not sent to it; write its own address"
    )]
    Redirected,
    /// The server refused the credentials.
    #[error(
        "wrong user or password; correct it before another try: cameras lock an account after a \
         few"
    )]
    WrongPassword,
    /// The server accepted the credentials for a request, and refused another one.
    #[error(
        "it accepted the password before, and refuses this request: the user may lack the right \
         to it, or the password has changed"
    )]
    NotPermitted,
    /// The server ended the connection, or did not answer, where it was sent the first answer.
    #[error("no reply to the password: {0}")]
    Unanswered(String),
    /// The server answered the password of another stream with 403.
    #[error("it answers the password with 403 Forbidden; correct it before another try")]
    Forbidden,
    /// The server found a nonce stale again and again.
    #[error("it calls each answer to its challenges stale; see whether its clock is right")]
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
    /// Answers to the newest challenge of their time that were refused since the server has last
    /// granted a request.
    refused_answers: u32,
    /// Reason why no request carries an answer any more.
    refusal: Option<LoginRefusal>,
}

#[derive(Debug)]
enum Answers {
    Basic,
    Digest(Box<DigestAnswers>),
}

/// The answer that a request carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentAnswer {
    Basic,
    /// With this nonce.
    Digest(String),
}

impl ConnectionLogin {
    pub(crate) fn new(login: ClientLogin) -> ConnectionLogin {
        let (answers, is_accepted, refused_answers, refusal) = (None, false, 0, None);
        ConnectionLogin { login, answers, is_accepted, refused_answers, refusal }
    }

    /// Waits until no other connection tries the password; the next answer is sent while the result
    /// is held. `None` where the password is known to be right, where the other takes too long, and
    /// where no answer will be sent.
    ///
    /// # Errors
    /// The server has refused the password.
    pub(crate) async fn turn(&mut self) -> Result<Option<OwnedMutexGuard<()>>, LoginRefusal> {
        if self.answers.is_none() || self.is_accepted || self.login.shared.is_accepted() {
            return Ok(None);
        }
        let turn = self.login.shared.turn();
        let turn = timeout(TURN_WAIT, turn).await.ok();
        match self.login.shared.known() {
            Known::Refused { reason, .. } => {
                (self.answers, self.refusal) = (None, Some(reason.clone()));
                Err(reason)
            }
            Known::Accepted => Ok(None),
            Known::Untried => Ok(turn),
        }
    }

    /// Adds the Authorization field to a request without a body, if the server has sent a
    /// challenge; returns the answer in it, too.
    pub(crate) fn authorize(&mut self, request: &[u8]) -> (Vec<u8>, Option<SentAnswer>) {
        let mut authorized = request.to_vec();
        let Some((answers, credentials)) =
            self.answers.as_mut().zip(self.login.credentials.as_ref())
        else {
            return (authorized, None);
        };
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = str::from_utf8(line).unwrap_or_default();
        let mut words = line.split(' ');
        let (method, uri) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let value = match answers {
            Answers::Basic => format!("Basic {}", *pair(credentials)),
            Answers::Digest(answers) => answers.next(credentials, method, uri),
        };
        // In place of the empty line that ends the request.
        authorized.truncate(request.len() - LINE_END.len());
        authorized.extend_from_slice(format!("Authorization: {value}\r\n\r\n").as_bytes());
        (authorized, self.sent_now())
    }

    /// Notes that the server granted a request.
    pub(crate) fn note_granted(&mut self, sent: Option<&SentAnswer>) {
        self.refused_answers = 0;
        if sent.is_some() {
            self.is_accepted = true;
            self.login.shared.set_accepted();
        }
    }

    /// Returns the refusal where the server ends the connection, or does not reply, behind an
    /// answer; `None` where the password is known to be right, or the request carried none.
    pub(crate) fn unanswered(
        &mut self,
        sent: Option<&SentAnswer>,
        found: &str,
    ) -> Option<LoginRefusal> {
        let shared = &self.login.shared;
        if sent.is_none() || self.is_accepted || shared.is_accepted() && !shared.doubt() {
            return None;
        }
        let reason = LoginRefusal::Unanswered(found.to_owned());
        shared.set_refused(reason.clone());
        Some(reason)
    }

    /// Notes 403, by which some servers refuse a password.
    pub(crate) fn note_forbidden(&self, sent: Option<&SentAnswer>) {
        let shared = &self.login.shared;
        if sent.is_some() && !self.is_accepted && (!shared.is_accepted() || shared.doubt()) {
            shared.set_refused(LoginRefusal::Forbidden);
        }
    }

    /// Accepts the WWW-Authenticate field of a 401 reply to a request that carried `sent`: the next
    /// request will carry an answer to it. Several fields are joined by commas.
    ///
    /// # Errors
    /// A challenge that cannot be answered, or that refuses the answer. Unless the server has
    /// accepted the password before, no request carries an answer from then on.
    pub(crate) fn accept_challenge(
        &mut self,
        field: Option<&str>,
        sent: Option<&SentAnswer>,
    ) -> Result<(), LoginRefusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let Some(credentials) = &self.login.credentials else {
            return Err(match self.login.is_redirected {
                true => LoginRefusal::Redirected,
                false => LoginRefusal::NoCredentials,
            });
        };
        let chosen = challenge::choose(field.unwrap_or_default(), self.login.allows_basic);
        let challenge = match chosen {
            Ok(Challenge::Basic) if credentials.user.contains(':') => {
                Err(LoginRefusal::Challenge(ChallengeFault::BasicUser))
            }
            chosen => chosen.map_err(LoginRefusal::Challenge),
        };
        let Some(sent) = sent else {
            self.answer(challenge?);
            return Ok(());
        };
        // The refusal of an older answer is no news.
        let is_newest = self.sent_now().as_ref() == Some(sent);
        self.refused_answers += u32::from(is_newest);
        let (refused_max, reason) = match (&challenge, sent) {
            (Ok(Challenge::Digest(challenge)), SentAnswer::Digest(_)) if challenge.is_stale => {
                (STALE_MAX, LoginRefusal::Stale)
            }
            // A tunnel may ask for another scheme than the requests in it.
            (Ok(Challenge::Digest(challenge)), sent)
                if self.is_accepted && *sent != SentAnswer::Digest(challenge.nonce.clone()) =>
            {
                (RENEWED_MAX, LoginRefusal::NotPermitted)
            }
            (Ok(Challenge::Basic), SentAnswer::Digest(_)) if self.is_accepted => {
                (RENEWED_MAX, LoginRefusal::NotPermitted)
            }
            _ if self.is_accepted && self.refused_answers <= RENEWED_MAX => {
                return Err(LoginRefusal::NotPermitted);
            }
            _ if self.is_accepted => return Err(self.refuse(LoginRefusal::NotPermitted)),
            _ if self.login.shared.is_accepted() && !self.login.shared.doubt() => {
                return Err(self.refuse(LoginRefusal::NotPermitted));
            }
            _ => return Err(self.refuse(LoginRefusal::WrongPassword)),
        };
        match challenge {
            Ok(challenge) if self.refused_answers <= refused_max => {
                self.answer(challenge);
                Ok(())
            }
            _ => Err(self.refuse(reason)),
        }
    }

    /// The answer that the next request carries.
    fn sent_now(&self) -> Option<SentAnswer> {
        self.answers.as_ref().map(|answers| match answers {
            Answers::Basic => SentAnswer::Basic,
            Answers::Digest(answers) => SentAnswer::Digest(answers.nonce().to_owned()),
        })
    }

    /// The login, for another connection in place of this one.
    pub(crate) fn login(&self) -> &ClientLogin {
        &self.login
    }

    /// True if a request carried an answer, and the server has accepted none on this connection.
    pub(crate) fn is_first(&self, sent: Option<&SentAnswer>) -> bool {
        sent.is_some() && !self.is_accepted
    }

    /// Masks an answer of Basic in a text of the server, which may repeat the request, and the
    /// password unless it is as short as words of the text.
    pub(crate) fn masked(&self, text: &str) -> String {
        let Some(credentials) = self.login.credentials.as_ref().filter(|_| self.login.allows_basic)
        else {
            return text.to_owned();
        };
        let text = text.replace(&*pair(credentials), "…");
        match credentials.password() {
            password if password.len() >= MASKED_BYTES_MIN => text.replace(password, "…"),
            _ => text,
        }
    }

    /// Answers a challenge from the next request on, unless it is answered already.
    fn answer(&mut self, challenge: Challenge) {
        match (challenge, &self.answers) {
            (Challenge::Digest(challenge), Some(Answers::Digest(answers)))
                if answers.nonce() == challenge.nonce => {}
            (Challenge::Digest(challenge), _) => {
                let answers = DigestAnswers::new(challenge);
                self.answers = Some(Answers::Digest(Box::new(answers)));
            }
            (Challenge::Basic, _) => self.answers = Some(Answers::Basic),
        }
    }

    /// Sends no answer from now on.
    fn refuse(&mut self, reason: LoginRefusal) -> LoginRefusal {
        if reason == LoginRefusal::WrongPassword {
            self.login.shared.set_refused(reason.clone());
        }
        self.answers = None;
        self.refusal = Some(reason.clone());
        reason
    }
}

/// User and password as Basic has them (RFC 7617 §2).
fn pair(credentials: &UserCredentials) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{}:{}", credentials.user, credentials.password()));
    Zeroizing::new(STANDARD.encode(pair.as_bytes()))
}

/// Length of passwords that are masked in texts of the server.
const MASKED_BYTES_MIN: usize = 4;
/// Longest wait for another connection that tries the password.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// Answers in a row that a server may call stale and have repeated.
const STALE_MAX: u32 = 2;
/// Answers in a row that it may refuse for a nonce that is no longer its own.
const RENEWED_MAX: u32 = 1;
/// Status of a challenge, and the field that it is in (RFC 7235 §3.1, §4.1).
pub(crate) const UNAUTHORIZED: u16 = 401;
pub(crate) const CHALLENGE: &str = "WWW-Authenticate";
const LINE_END: &str = "\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = b"DESCRIBE rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\n\r\n";

    fn login(allows_basic: bool) -> ClientLogin {
        let credentials = UserCredentials::new("anna", "p@ss:word").unwrap();
        ClientLogin { allows_basic, ..ClientLogin::new(Some(credentials)) }
    }

    fn connection(allows_basic: bool) -> ConnectionLogin {
        ConnectionLogin::new(login(allows_basic))
    }

    fn digest(nonce: &str, more: &str) -> String {
        format!("Digest realm=\"r\", nonce=\"{nonce}\", qop=\"auth\"{more}")
    }

    fn with_nonce(nonce: &str) -> SentAnswer {
        SentAnswer::Digest(nonce.to_owned())
    }

    fn authorized(login: &mut ConnectionLogin) -> String {
        String::from_utf8(login.authorize(REQUEST).0).unwrap()
    }

    /// A connection whose server has accepted the password, with the nonce n.
    fn accepted() -> ConnectionLogin {
        let mut login = connection(false);
        login.accept_challenge(Some(&digest("n", "")), None).unwrap();
        login.note_granted(Some(&with_nonce("n")));
        login
    }

    #[test]
    fn a_request_has_no_answer_before_a_challenge_and_one_answer_after() {
        let mut login = connection(false);
        assert_eq!(login.authorize(REQUEST), (REQUEST.to_vec(), None));
        login.accept_challenge(Some(&digest("n", "")), None).unwrap();
        for count in ["00000001", "00000002"] {
            let text = authorized(&mut login);
            assert!(text.starts_with("DESCRIBE rtsp://h/a RTSP/1.0\r\nCSeq: 1\r\nAuthorization: "));
            assert!(text.ends_with("\r\n\r\n") && text.matches("\r\n\r\n").count() == 1, "{text}");
            assert!(text.contains(&format!("nc={count}")), "{text}");
            assert!(!text.contains("p@ss"), "{text}");
        }
        assert_eq!(login.authorize(REQUEST).1, Some(with_nonce("n")));
    }

    #[test]
    fn a_wrong_password_is_answered_once() {
        for again in [Some(digest("n", "")), Some(digest("m", ", stale=false")), None] {
            let mut login = connection(false);
            login.accept_challenge(Some(&digest("n", "")), None).unwrap();
            let found = login.accept_challenge(again.as_deref(), Some(&with_nonce("n")));
            assert_eq!(found, Err(LoginRefusal::WrongPassword), "{again:?}");
            assert_eq!(login.authorize(REQUEST).1, None, "it is not sent again");
            let found = login.accept_challenge(Some(&digest("o", "")), None);
            assert_eq!(found, Err(LoginRefusal::WrongPassword));
        }
    }

    #[tokio::test]
    async fn connections_of_one_login_try_its_password_once() {
        let login = login(false);
        let [mut first, mut second, mut third] =
            std::array::from_fn(|_| ConnectionLogin::new(login.clone()));
        for connection in [&mut first, &mut second, &mut third] {
            assert!(connection.turn().await.unwrap().is_none(), "there is nothing to send");
            connection.accept_challenge(Some(&digest("n", "")), None).unwrap();
        }
        let turn = first.turn().await.unwrap().expect("the first");
        {
            let mut waiting = std::pin::pin!(second.turn());
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(waiting.as_mut().poll(context).is_pending())
            });
            assert!(polled.await, "the second waits for the first");
            let found = first.accept_challenge(Some(&digest("n", "")), Some(&with_nonce("n")));
            assert_eq!(found, Err(LoginRefusal::WrongPassword));
            drop(turn);
            assert_eq!(waiting.await.unwrap_err(), LoginRefusal::WrongPassword);
        }
        assert_eq!(second.authorize(REQUEST).1, None);
        login.shared.set_accepted();
        assert!(third.turn().await.unwrap().is_none(), "the password is known to be right");
        login.shared.forget();
        assert!(third.turn().await.unwrap().is_some(), "it may be tried again");
    }

    #[test]
    fn stale_nonces_are_renewed_and_so_are_others_once_the_password_was_right() {
        let mut login = connection(false);
        login.accept_challenge(Some(&digest("n", "")), None).unwrap();
        let stale = digest("m", ", stale=TRUE");
        login.accept_challenge(Some(&stale), Some(&with_nonce("n"))).unwrap();
        assert!(authorized(&mut login).contains("nonce=\"m\""));
        login.note_granted(Some(&with_nonce("m")));
        login.accept_challenge(Some(&digest("o", "")), Some(&with_nonce("m"))).unwrap();
        assert!(authorized(&mut login).contains("nonce=\"o\", uri"));
        // The reply to an older request, with the nonce that is in use since: its count continues.
        login.accept_challenge(Some(&digest("o", "")), Some(&with_nonce("m"))).unwrap();
        assert!(authorized(&mut login).contains("nc=00000002"));
    }

    #[test]
    fn a_password_that_is_changed_in_mid_session_is_sent_twice() {
        let mut login = accepted();
        let mut refused = 0;
        for nonce in ["o", "p", "q", "r", "s"] {
            let (_, sent) = login.authorize(REQUEST);
            refused += u32::from(sent.is_some());
            let _ = login.accept_challenge(Some(&digest(nonce, "")), sent.as_ref());
        }
        assert_eq!(refused, 2);
        let found = login.accept_challenge(Some(&digest("t", "")), None);
        assert_eq!(found, Err(LoginRefusal::NotPermitted));
    }

    #[test]
    fn a_request_that_is_not_permitted_leaves_the_others_their_answers() {
        let mut login = accepted();
        let found = login.accept_challenge(Some(&digest("n", "")), Some(&with_nonce("n")));
        assert_eq!(found, Err(LoginRefusal::NotPermitted));
        assert_eq!(login.authorize(REQUEST).1, Some(with_nonce("n")));
        assert!(login.login.shared.is_accepted());
        // Nor does a stream that the user may not have keep the others from theirs.
        let refused = || {
            let mut other = ConnectionLogin::new(login.login.clone());
            other.accept_challenge(Some(&digest("n", "")), None).unwrap();
            other.accept_challenge(Some(&digest("n", "")), Some(&with_nonce("n"))).unwrap_err()
        };
        assert_eq!([refused(), refused()], [(); 2].map(|()| LoginRefusal::NotPermitted));
        assert!(login.login.shared.is_accepted());
        assert_eq!(refused(), LoginRefusal::WrongPassword, "too many in a row");
        assert!(!login.login.shared.is_accepted());
    }

    #[test]
    fn a_server_that_does_not_reply_to_a_password_has_refused_it() {
        let mut first = connection(false);
        first.accept_challenge(Some(&digest("n", "")), None).unwrap();
        assert_eq!(first.unanswered(None, "closed"), None, "no password was sent");
        let sent = with_nonce("n");
        let reason = LoginRefusal::Unanswered("closed".to_owned());
        assert_eq!(first.unanswered(Some(&sent), "closed"), Some(reason.clone()));
        assert!(
            matches!(first.login.shared.known(), Known::Refused { reason: r, .. } if r == reason)
        );
        let mut login = accepted();
        assert_eq!(login.unanswered(Some(&sent), "closed"), None, "a connection that broke");
        let mut other = ConnectionLogin::new(login.login.clone());
        let found = [(); 3].map(|()| other.unanswered(Some(&sent), "closed").is_some());
        assert_eq!(found, [false, false, true]);
    }

    #[test]
    fn basic_is_answered_where_that_is_allowed_and_where_there_is_no_digest() {
        let basic = Some("Basic realm=\"r\"");
        let mut refused = connection(false);
        let found = refused.accept_challenge(basic, None).unwrap_err();
        assert!(found.to_string().contains("clear text (Basic)"), "{found}");
        assert_eq!(refused.authorize(REQUEST).1, None);
        let mut allowed = connection(true);
        allowed.accept_challenge(basic, None).unwrap();
        assert!(authorized(&mut allowed).contains("Authorization: Basic YW5uYTpwQHNzOndvcmQ=\r\n"));
        let again = allowed.accept_challenge(basic, Some(&SentAnswer::Basic));
        assert_eq!(again, Err(LoginRefusal::WrongPassword));
        let mut both = connection(true);
        let field = format!("Basic realm=\"r\", {}", digest("n", ""));
        both.accept_challenge(Some(&field), None).unwrap();
        assert!(authorized(&mut both).contains("Authorization: Digest "));
        let colon = UserCredentials::new("an:na", "p").unwrap();
        let login = ClientLogin { allows_basic: true, ..ClientLogin::new(Some(colon)) };
        let found = ConnectionLogin::new(login).accept_challenge(basic, None).unwrap_err();
        assert_eq!(found, LoginRefusal::Challenge(ChallengeFault::BasicUser));
    }

    #[test]
    fn a_tunnel_may_ask_for_basic_and_the_requests_in_it_for_digest() {
        let mut login = connection(true);
        login.accept_challenge(Some("Basic realm=\"r\""), None).unwrap();
        login.note_granted(Some(&SentAnswer::Basic));
        login.accept_challenge(Some(&digest("n", "")), Some(&SentAnswer::Basic)).unwrap();
        assert_eq!(login.authorize(REQUEST).1, Some(with_nonce("n")));
        let mut login = ConnectionLogin { login: tests::login(true), ..accepted() };
        login.accept_challenge(Some("Basic realm=\"r\""), Some(&with_nonce("n"))).unwrap();
        assert_eq!(login.authorize(REQUEST).1, Some(SentAnswer::Basic));
        let echo = format!("400 Bad: {}", authorized(&mut login));
        assert!(!login.masked(&echo).contains("YW5uY"), "{}", login.masked(&echo));
        assert_eq!(login.masked("403 anna has p@ss:word"), "403 anna has …");
    }

    #[test]
    fn without_credentials_a_challenge_is_refused() {
        for (login, reason) in [
            (ClientLogin::default(), LoginRefusal::NoCredentials),
            (ClientLogin::default().redirected(), LoginRefusal::Redirected),
        ] {
            let mut nobody = ConnectionLogin::new(login);
            assert_eq!(nobody.accept_challenge(Some(&digest("n", "")), None), Err(reason));
        }
    }
}
