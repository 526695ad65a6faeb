// SPDX-License-Identifier: MIT OR Apache-2.0
// admin_mock: the administrators' page before an API of this test's own: clients of every cause, an
// hour of figures, a wrong password, a session that ends. What the API itself answers is tested
// where it is made.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";

const WEB = new URL("../../../../web/", import.meta.url);
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
  "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const TYPES = { js: "text/javascript", css: "text/css" };

const session = (id, cause, cause_text, more) => ({
  id,
  user: `user${id}`,
  address: `192.0.2.${id}:50${id}00`,
  protocol: "rtsp",
  asset: `Films/film ${id}.mp4`,
  started_s: 1_700_000_000,
  duration_s: 60 * id,
  bits_per_s: 4.2e6 * id,
  packets: 1000 * id,
  bytes: 1e6 * id,
  late_ms: { p50: 0.1, p99: 0.4 * id, max: 3 },
  lost_percent: 0,
  jitter_ms: 1.5,
  round_trip_ms: 24,
  path: "wire_sendfile",
  cause,
  cause_text,
  ...more,
});

export async function mock() {
  const state = {
    sessions: [
      session(1, "none", ""),
      session(2, "network_loss", "RTCP reports 5.1 % lost in the last 5 s", { lost_percent: 5.1 }),
      session(3, "window_closed", "its receive window has been 0 for 4 s", {
        protocol: "rtsp-tcp",
      }),
      session(4, "paced_late", "99 % of packets up to 31 ms late", { user: null }),
      session(5, "disk", "waited 12 times for pages", {
        asset: '<img src=x onerror=alert(1)>/a"b.mp4',
      }),
    ],
    ended: [],
    headers: [],
  };
  const samples = Array.from({ length: 360 }, (_, at) => ({
    time_s: 1_700_000_000 + at * 10,
    bits_per_s: 4e8 + 2e8 * Math.sin(at / 40) + (at > 250 ? 1.5e8 : 0),
    sessions: 80 + Math.round(30 * Math.sin(at / 50)),
    connections: 120 + Math.round(40 * Math.sin(at / 45)),
    cpu_percent: 12 + 5 * Math.sin(at / 40),
    cpu_s_per_gb: at < 20 ? null : 0.21 + 0.02 * Math.sin(at / 30),
    late_p99_us: 180 + 90 * Math.abs(Math.sin(at / 15)),
    lost_percent: at > 250 && at < 290 ? 2.5 : 0,
  }));
  let isIn = false;
  const api = {
    "POST /v1/login": ({ user, password }) => {
      if (user !== "admin" || password !== "right")
        return [401, { error: "no such user, or another password" }];
      isIn = true;
      return [200, {}];
    },
    "POST /v1/logout": () => {
      isIn = false;
      return [200, {}];
    },
    "GET /v1/status": () => [
      200,
      {
        version: "1.2.3",
        uptime_s: 7260,
        sessions: state.sessions.length,
        bits_per_s: 6.3e7,
        cpu_percent: 14,
        cpu_s_per_gb: 0.22,
        cores: 2,
        has_users: true,
        http_viewers: 3,
        capacity_bits_per_s: 7.2e10,
        capacity_left_percent: 62,
      },
    ],
    "GET /v1/sessions": () => [200, { sessions: state.sessions }],
    "GET /v1/history": () => [200, { interval_s: 10, samples }],
    "GET /v1/channels": () => [
      200,
      {
        channels: [
          {
            name: "news",
            title: "News",
            sending: true,
            on_air: "news/1.ts",
            bytes: 5e9,
            faults: [],
          },
          {
            name: "two",
            title: "Two",
            sending: false,
            on_air: null,
            bytes: 0,
            faults: ["two/9.ts: no such file"],
          },
        ],
      },
    ],
  };
  const answer = async (request, response) => {
    const path = new URL(request.url, "http://mock").pathname;
    const send = (status, type, body) => {
      response.writeHead(status, { "Content-Type": type, "Content-Security-Policy": POLICY });
      response.end(body);
    };
    if (path === "/") {
      const text = await readFile(new URL("admin.html", WEB), "utf8");
      return send(200, "text/html; charset=utf-8", text.replaceAll("{{assets}}", "./.pagewire/x/"));
    }
    const file = /^\/\.pagewire\/x\/([a-z_]+)\.(js|css)$/.exec(path);
    if (file)
      return send(200, TYPES[file[2]], await readFile(new URL(`${file[1]}.${file[2]}`, WEB)));
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const route = `${request.method} ${path}`;
    if (request.method !== "GET")
      state.headers.push([route, request.headers["content-type"], request.headers["x-pagewire"]]);
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks)) : {};
    const json = (status, value) => send(status, "application/json", JSON.stringify(value));
    if (!isIn && path.startsWith("/v1/") && path !== "/v1/login")
      return json(401, { error: "log in first" });
    const gone = /^\/v1\/sessions\/(\d+)$/.exec(path);
    if (gone && request.method === "DELETE") {
      state.ended.push(Number(gone[1]));
      state.sessions = state.sessions.filter(({ id }) => id !== Number(gone[1]));
      return json(200, {});
    }
    return api[route] ? json(...api[route](body)) : json(404, { error: "no such path" });
  };
  const server = createServer((request, response) =>
    answer(request, response).catch((error) => response.destroy(error)),
  );
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { state, server, address: `http://127.0.0.1:${server.address().port}` };
}
