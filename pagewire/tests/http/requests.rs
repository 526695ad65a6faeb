// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: methods, versions, targets, hosts, fields and expectations.
//!
//! Sources: nginx-tests http_method.t, http_uri.t, http_host.t, merge_slashes.t, index.t,
//! ignore_invalid_headers.t, http_headers_multi.t, http_header_buffers.t,
//! http_expect_100_continue.t; RFC 9110 §5, §7.2, §9, §10.1.1, RFC 9112 §2.3, §3, RFC 3986 §3.2.

use crate::row::{Row, check};
use crate::{FILE_BYTES, get, serve};

const CLOSE: &str = "Host: h\r\nConnection: close\r\n";

#[test]
fn methods_other_than_get_and_head_are_refused_by_kind() {
    let server = serve(&[]);
    let asked = |name: &str, line: &str, status| {
        Row::new(name, format!("{line} HTTP/1.1\r\n{CLOSE}\r\n"), status)
    };
    let allowed = |row: Row| row.field("Allow", "GET, HEAD, OPTIONS");
    let case = "methods are case-sensitive; an unknown one is 501 (RFC 9110 §9.1)";
    let rows = [
        allowed(asked("http_method.t: trace", "TRACE /a.bin", 405)),
        allowed(asked("http_method.t: connect", "CONNECT localhost:8080", 405)),
        asked("http_method.t: connect uri", "CONNECT /", 400),
        asked("http_method.t: connect no port", "CONNECT localhost", 400),
        asked("RFC 9110 §9.3.6: connect to an empty port", "CONNECT localhost:", 400),
        asked("RFC 9110 §9.3.6: connect to a port that is none", "CONNECT localhost:99999", 400),
        asked("RFC 9110 §9.3.6: connect to port 0", "CONNECT localhost:0", 400),
        asked("RFC 9112 §3.2.3: connect to a URL", "CONNECT http://h:80/", 400),
        asked("RFC 9112 §3.2.3: host and port of a GET", "GET localhost:8080", 400),
        allowed(asked("RFC 9110 §9.3.3: post", "POST /a.bin", 405)),
        allowed(asked("RFC 9110 §9.3.4: put", "PUT /new.bin", 405)),
        allowed(asked("RFC 9110 §9.3.5: delete", "DELETE /a.bin", 405)),
        allowed(asked("RFC 5789: patch", "PATCH /a.bin", 405)),
        allowed(
            asked("RFC 9110 §9.3.7: options", "OPTIONS /a.bin", 204)
                .differs("405", "OPTIONS asks for the methods that are allowed (RFC 9110 §9.3.7)"),
        ),
        allowed(
            asked("RFC 9112 §3.2.4: options of the server", "OPTIONS *", 204)
                .differs("400", "the target * is that of OPTIONS (RFC 9112 §3.2.4)"),
        ),
        asked("RFC 9112 §3.2.4: get of the server", "GET *", 400),
        asked("RFC 9110 §9.1: unknown method", "BREW /a.bin", 501).differs("405", case),
        asked("RFC 9110 §9.1: get in lower case", "get /a.bin", 501).differs("400", case),
        asked("RFC 9110 §5.6.2: method that is no token", "GE(T /a.bin", 400),
        asked("RFC 9110 §9.3.2: head", "HEAD /a.bin", 200)
            .field("Content-Length", "1000")
            .head_only(),
        asked("head of what is not there", "HEAD /none", 404).head_only(),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn versions_are_told_apart() {
    let server = serve(&[]);
    let asked = |name: &str, version: &str, status| {
        Row::new(name, format!("GET /a.bin{version}\r\n{CLOSE}\r\n"), status)
    };
    let rows = [
        asked("RFC 9112 §2.3: HTTP/1.0", " HTTP/1.0", 200).bytes(0..FILE_BYTES),
        asked("RFC 9112 §2.3: HTTP/1.1", " HTTP/1.1", 200).bytes(0..FILE_BYTES),
        asked("RFC 9110 §15.6.6: HTTP/2.0", " HTTP/2.0", 505),
        asked("RFC 9110 §15.6.6: HTTP/0.9", " HTTP/0.9", 505)
            .differs("400", "a major version that is not spoken is 505 (RFC 9110 §15.6.6)"),
        asked("RFC 9110 §2.5: HTTP/1.2", " HTTP/1.2", 505).differs(
            "200",
            "RFC 9110 §2.5 would have it read as 1.1; no client sends it, and the parser has none",
        ),
        asked("RFC 9112 §2.3: in lower case", " http/1.1", 400),
        asked("RFC 9112 §2.3: two digits", " HTTP/1.11", 400)
            .differs("200", "a version has one digit on either side (RFC 9112 §2.3)"),
        asked("RFC 9112 §2.3: no digit", " HTTP/1.", 400),
        asked("RFC 9112 §3: other protocol", " RTSP/1.0", 400),
        asked("RFC 9112 §3: no version", "", 400)
            .differs("200, as HTTP/0.9", "a request line has a version (RFC 9112 §3)"),
        asked("RFC 9112 §3: space behind the version", " HTTP/1.1 ", 400)
            .differs("200", "the version ends the line (RFC 9112 §3)"),
        asked("RFC 9112 §3: two spaces", "  HTTP/1.1", 400)
            .differs("200", "single spaces separate the parts (RFC 9112 §3)"),
        Row::new("RFC 9113 §3.4: preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)
            .differs("400", "a major version that is not spoken is 505 (RFC 9110 §15.6.6)"),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn targets_are_read_in_every_form() {
    let server = serve(&[]);
    let at = |name: &str, target: &str, status| Row::new(name, get(target, ""), status);
    let whole = |name: &str, target: &str| at(name, target, 200).bytes(0..FILE_BYTES);
    let fragment = "a target has no fragment (RFC 9112 §3.2)";
    let dots = "removing dot segments is the client's part; none leads up (RFC 3986 §5.2.4)";
    let rows = [
        at("http_uri.t: percent", "/foo/bar%", 400),
        at("http_uri.t: percent digit", "/foo/bar%1", 400),
        at("http_uri.t: dot args", "/folder/.?args", 200),
        at("http_uri.t: dot frag", "/folder/.#frag", 400).differs("200", fragment),
        at("http_uri.t: dot dot args", "/folder/..?args", 403)
            .differs("dot segments removed", dots),
        at("http_uri.t: dot dot frag", "/folder/..#frag", 400).differs("200", fragment),
        at("http_uri.t: trailing dot", "/folder/.", 200),
        at("http_uri.t: trailing dot dot", "/folder/..", 403).differs("dot segments removed", dots),
        at("http_uri.t: absolute", "http://localhost", 200),
        at("http_uri.t: absolute slash", "http://localhost/", 200),
        at("http_uri.t: absolute args", "http://localhost?args", 200),
        at("http_uri.t: absolute args and frag", "http://localhost?args#frag", 400)
            .differs("200", fragment),
        at("http_uri.t: port", "http://localhost:8080", 200),
        at("http_uri.t: port slash", "http://localhost:8080/", 200),
        at("http_uri.t: port args", "http://localhost:8080?args", 200),
        at("http_uri.t: port args and frag", "http://localhost:8080?args#frag", 400)
            .differs("200", fragment),
        at("http_uri.t: space", "/ /", 400),
        at("http_uri.t: control", "/\x02", 400),
        at("http_uri.t: control escaped", "/%02", 404),
        whole("absolute form of a file", "http://localhost:8080/folder/b.bin"),
        whole("absolute form of https", "HTTPS://localhost/a.bin"),
        at("RFC 9112 §3.2.2: other scheme", "ftp://localhost/a.bin", 400)
            .differs("200", "only http and https are served (RFC 9110 §7.4)"),
        at("RFC 9110 §4.2.4: userinfo", "http://user@localhost/a.bin", 400),
        at("RFC 9112 §3.2.1: no slash", "a.bin", 400),
        at("RFC 3986 §7.3: escaped NUL", "/a.bin%00", 400),
        at("RFC 3986 §2.1: no hexadecimal digit", "/a%2gbin", 400),
        whole("RFC 3986 §2.3: escaped letters", "/%61.b%69n"),
        whole("query that is not read", "/a.bin?start=1&x=%zz"),
        whole("merge_slashes.t: slashes", "//folder///b.bin"),
        at("merge_slashes.t: merge slashes", "/folder//../a.bin", 403)
            .differs("dot segments removed", dots),
        at("merge_slashes.t: merge slashes 2", "/folder///../b.bin", 403)
            .differs("dot segments removed", dots),
        at("index.t: default index", "/", 200).field("Content-Type", "text/html; charset=utf-8"),
        at("index.t: no index", "/folder/", 200)
            .differs("403", "each folder has a listing here (RFC 9110 §9.3.1)"),
        at("index.t: not found", "/not_found/", 404),
        at("index.t: not a directory", "/a.bin/", 404),
    ];
    check(&server, &rows);
    server.stop();
}

/// Name of the case, host, status, and nginx's status where it differs, with the reason.
type HostRow = (&'static str, &'static str, u16, Option<(&'static str, &'static str)>);

const REG_NAME: &str = "dots stand anywhere in a reg-name (RFC 3986 §3.2.2)";
const PORT: &str = "a port is any number of digits (RFC 3986 §3.2.3); no answer depends on it";
const LITERAL: &str = "an IP-literal is an address of IPv6 (RFC 3986 §3.2.2)";
const FUTURE: &str = "an address mechanism that is not known is refused (RFC 3986 §3.2.2)";

const HOSTS: &[HostRow] = &[
    ("domain single", "l", 200, None),
    ("domain single upper", "L", 200, None),
    ("domain stray colon", "abcd-ef.g02.xyz:", 200, None),
    ("ipv4 stray colon", "123.40.56.78:", 200, None),
    ("domain w/o port", "www.abcd-ef.g02.xyz", 200, None),
    ("domain w/port", "abcd-ef.g02.xyz:8080", 200, None),
    ("domain w/ ending dot w/o port", "www.abcd-ef.g02.xyz.", 200, None),
    ("domain w/ ending dot w/port", "abcd-ef.g02.xyz.:88", 200, None),
    ("domain w/ ending dot w/port dot", "example.com.:1.2", 400, None),
    ("empty domain w/ ending dot", ".", 200, Some(("400", REG_NAME))),
    ("mixed case domain w/port", "AbC-d93.0.34ZhGt-s.nk.Ru:88", 200, None),
    ("ipv4 w/o port", "123.40.56.78", 200, None),
    ("ipv4 w/port", "123.49.0.78:987", 200, None),
    ("ipv4 w/port long", "123.49.0.78:98777", 200, Some(("400", PORT))),
    ("ipv4 w/port double", "123.40.56.78:9000:80", 400, None),
    ("ipv6 literal w/o port", "[abcd::ef98:0:7654:321]", 200, None),
    ("ipv6 literal w/port", "[abcd::ef98:0:7654:321]:80", 200, None),
    ("ipv4-mapped ipv6 w/o port", "[::ffff:12.30.67.89]", 200, None),
    ("ipv4-mapped ipv6 w/port", "[::123.45.67.89]:4321", 200, None),
    ("domain w/ path separators", "example.com\\:552", 400, None),
    ("domain w/ double dot", "..examp-LE.com", 200, Some(("400", REG_NAME))),
    ("domain w/ double dot at its end", "com.exa-m.45..:", 200, Some(("400", REG_NAME))),
    ("ipv6 literal w/ path separators", "[abcd::e\\f98:0:7654:321]", 400, None),
    ("ipv6 literal w/ ending dot w/o port", "[abcd::ef98:0:7654:321].", 400, None),
    ("ipv6 literal w/ ending dot w/port", "[abcd::ef98:0:7654:321].:98", 400, None),
    ("ipv6 literal w/ double dot behind it", "[abcd::ef98:0:7654:321]..:98", 400, None),
    ("ipv6 literal w/ double dot", "[ab..cd::ef98:0:7654:321]", 400, None),
    ("ipv6 literal w/ leading alnum", "extra[abcd::ef98:0:7654:321]:98", 400, None),
    ("ipv6 literal missing bracket", "[abcd::ef98:0:7654:321", 400, None),
    ("ipv6 literal of nine groups", "[1:2:3:4:5:6:7:8:9]", 400, Some(("200", LITERAL))),
    ("ipv6 literal with two gaps", "[1::2::3]", 400, Some(("200", LITERAL))),
    ("IPvFuture all symbols", "[v0aF.!$&'()*+,;=-._~:]", 400, Some(("200", FUTURE))),
    ("control", "localhost\x02", 400, None),
    ("space within", "local host", 400, None),
    ("userinfo", "user@localhost", 400, None),
    ("not ASCII", "h\u{e4}", 400, None),
];

#[test]
fn hosts_are_checked_in_the_field_and_in_the_target() {
    let server = serve(&[]);
    let mut rows = Vec::new();
    for (name, host, status, differs) in HOSTS {
        let field = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
        let target = format!("GET http://{host}/ HTTP/1.0\r\nHost: h\r\n\r\n");
        for (form, sent) in [("host header", field), ("absolute request", target)] {
            let row = Row::new(format!("http_host.t: {name} ({form})"), sent, *status);
            rows.push(match differs {
                Some((nginx, reason)) => row.differs(nginx, reason),
                None => row,
            });
        }
    }
    let empty = "a client without an authority sends an empty Host (RFC 9110 §7.2)";
    let old = |name: &str, lines: &str, status| {
        Row::new(name, format!("GET /a.bin HTTP/1.0\r\n{lines}\r\n"), status)
    };
    rows.extend([
        old("http_host.t: domain empty (host header)", "Host: \r\n", 200).differs("400", empty),
        Row::new(
            "http_host.t: domain empty (absolute request)",
            "GET http:/// HTTP/1.0\r\nHost: h\r\n\r\n",
            400,
        ),
        Row::new(
            "http_host.t: path separators (absolute request)",
            "GET http://\\e/xample.com HTTP/1.0\r\nHost: h\r\n\r\n",
            400,
        ),
        old("http_host.t: host repeat", "Host: localhost\r\nHost: again\r\n", 400),
        old("http_headers_multi.t: same host twice", "Host: foo\r\nHost: foo\r\n", 400),
        old("http_headers_multi.t: no host", "", 200),
        Row::new("RFC 9112 §3.2: no host in HTTP/1.1", "GET /a.bin HTTP/1.1\r\n\r\n", 400),
        Row::new(
            "RFC 9112 §3.2: no host field beside a URL",
            "GET http://h/a.bin HTTP/1.1\r\n\r\n",
            400,
        ),
    ]);
    check(&server, &rows);
    server.stop();
}

#[test]
fn fields_are_tokens_and_may_come_again() {
    let server = serve(&[]);
    let with = |name: &str, lines: &str, status| Row::new(name, get("/a.bin", lines), status);
    let long = "1234567890".repeat(20);
    let rows = [
        with("ignore_invalid_headers.t: underscore", "x_foo: x-bar\r\n", 200),
        with("ignore_invalid_headers.t: underscore first", "_foo: x-bar\r\n", 200),
        with("ignore_invalid_headers.t: dot", "x.foo: x-bar\r\n", 200),
        with("ignore_invalid_headers.t: dot first", ".foo: x-bar\r\n", 200),
        with("ignore_invalid_headers.t: several", "coo: foo\r\n</kie>: x-bar\r\n", 400)
            .differs("200, the line ignored", "a field name is a token (RFC 9110 §5.1)"),
        with("ignore_invalid_headers.t: colon first", ":foo: x-bar\r\n", 400),
        Row::new(
            "ignore_invalid_headers.t: space",
            "GET /a.bin HTTP/1.0\r\n foo: x-bar\r\n\r\n",
            400,
        ),
        with("ignore_invalid_headers.t: control", "foo\x02: x-bar\r\n", 400),
        Row::new(
            "RFC 9112 §2.2: space before the first field",
            "GET /a.bin HTTP/1.1\r\n Host: h\r\n\r\n",
            400,
        ),
        with("RFC 9110 §5.1: every sign of a token", "!#$%&'*+-.^_`|~: x\r\n", 200),
        with("RFC 9110 §5.5: bytes past ASCII", "X: \u{e4}\u{f6}\u{fc}\r\n", 200),
        with("RFC 9110 §5.5: tab in a value", "X: a\tb\r\n", 200),
        with("RFC 9110 §5.5: empty value", "X:\r\n", 200),
        with("http_headers_multi.t: cookies", "Cookie: foo=1\r\nCookie: bar=2\r\n", 200),
        with("http_headers_multi.t: via", "Via: foo\r\nVia: bar\r\nVia: bazz\r\n", 200),
        with("http_headers_multi.t: user agents", "User-Agent: foo\r\nUser-Agent: bar\r\n", 200),
        with("http_headers_multi.t: referers", "Referer: foo\r\nReferer: bar\r\n", 200),
        with("http_headers_multi.t: types", "Content-Type: foo\r\nContent-Type: bar\r\n", 200),
        with("http_headers_multi.t: one length of 0", "Content-Length: 0\r\n", 200),
        with(
            "http_headers_multi.t: content ranges",
            "Content-Range: foo\r\nContent-Range: bar\r\n",
            200,
        )
        .differs("400", "Content-Range of a GET has no meaning (RFC 9110 §14.4)"),
        with(
            "http_headers_multi.t: credentials",
            "Authorization: Basic dXNlcjpzZWNyZXQ=\r\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n",
            200,
        )
        .differs("400", "two credentials are none; this server needs none (RFC 9110 §11.6.2)"),
        with("http_header_buffers.t: long header", &format!("X-Foo: foo{long}bar\r\n"), 200),
        Row::new(
            "http_header_buffers.t: long request line",
            get(&format!("/foo{long}bar"), ""),
            404,
        ),
    ];
    check(&server, &rows);
    server.stop();
}

#[test]
fn expectations_get_the_final_answer_at_once() {
    let server = serve(&[]);
    let post = |version: &str, expect: &str, length: u32| {
        format!(
            "POST /a.bin HTTP/{version}\r\nHost: h\r\nExpect: {expect}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        )
    };
    let at_once = "the final answer may come in place of 100 (RFC 9110 §10.1.1)";
    let next = get("/a.bin", "");
    let rows = [
        Row::new("http_expect_100_continue.t: expect", post("1.1", "100-continue", 0), 405)
            .differs("100 and the final answer", at_once),
        Row::new("http_expect_100_continue.t: case", post("1.1", "100-Continue", 0), 405)
            .differs("100 and the final answer", at_once),
        Row::new("http_expect_100_continue.t: HTTP/1.0", post("1.0", "100-continue", 0), 405),
        Row::new("http_expect_100_continue.t: unknown", post("1.1", "unknown", 0), 417)
            .differs("100 or none (its case says: not yet)", "RFC 9110 §10.1.1 allows 417"),
        Row::new("http_expect_100_continue.t: extension", post("1.1", "token=param", 0), 417)
            .differs("100 or none (its case says: not yet)", "RFC 9110 §10.1.1 allows 417"),
        Row::new(
            "http_headers_multi.t: two expectations",
            get("/a.bin", "Expect: foo\r\nExpect: bar\r\n"),
            417,
        )
        .differs("400", "an expectation that cannot be met is 417 (RFC 9110 §10.1.1)"),
        Row::new("content that is awaited", post("1.1", "100-continue", 10), 405)
            .field("Connection", "close"),
        Row::new(
            "request in place of awaited content",
            post("1.1", "100-continue", 10).replace("Connection: close\r\n", "") + &next,
            405,
        )
        .field("Connection", "close"),
    ];
    check(&server, &rows);
    server.stop();
}
