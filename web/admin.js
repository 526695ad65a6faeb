// SPDX-License-Identifier: MIT OR Apache-2.0
// admin: the page for administrators: who plays what and why it stutters, what the machine does and
// could do, and what channels send.

import { LoginNeeded, ask } from "./admin_api.js";
import { announce, el } from "./dom.js";
import { clock, counted, rate, size } from "./format.js";
import { plot } from "./plots.js";
import { startThemeSwitch } from "./theme_switch.js";

const SESSIONS_MS = 2000,
  SLOW_MS = 10_000;

// Causes of the API, as people name them. Each has a colour and a word: colour alone says nothing.
const CAUSES = {
  none: ["On time", "good"],
  network_loss: ["Network loses packets", "bad"],
  window_closed: ["Client does not read", "warn"],
  socket_full: ["Socket is full", "warn"],
  paced_late: ["Server is late", "bad"],
  disk: ["Disk is slow", "bad"],
};

const main = document.querySelector("main");
const logout = document.querySelector(".logout");
let timers = [];
// Number of the board or form that is shown: answers to an older one are ignored.
let generation = 0;

startThemeSwitch(document.querySelector(".theme"));
logout.addEventListener("click", async () => {
  await ask("logout", { method: "POST", body: {} }).catch(() => {});
  showLogin();
});
start();

async function start() {
  try {
    await ask("status");
    showBoard();
  } catch (error) {
    if (error instanceof LoginNeeded) showLogin();
    else showLogin(error.message);
  }
}

function stop() {
  generation += 1;
  timers.forEach(clearInterval);
  timers = [];
}

function showLogin(reason) {
  stop();
  logout.hidden = true;
  const said = el("p", { class: "login-error", role: "alert" }, reason ?? "");
  const field = (name, label, type) =>
    el(
      "label",
      {},
      el("span", {}, label),
      el("input", {
        name,
        type,
        required: true,
        autocomplete: name === "user" ? "username" : "current-password",
      }),
    );
  const button = el("button", { class: "button main" }, "Log in");
  const form = el(
    "form",
    { class: "login panel", method: "post" },
    el("h1", {}, "Log in"),
    field("user", "User", "text"),
    field("password", "Password", "password"),
    said,
    button,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    said.textContent = "";
    try {
      const { user, password } = Object.fromEntries(new FormData(form));
      await ask("login", { method: "POST", body: { user, password } });
      showBoard();
    } catch (error) {
      said.textContent = error.message;
      form.querySelector("[name=password]").value = "";
      form.querySelector("[name=password]").focus();
    } finally {
      button.disabled = false;
    }
  });
  main.replaceChildren(form);
  form.querySelector("input").focus();
}

function showBoard() {
  stop();
  logout.hidden = false;
  const parts = {
    tiles: el("div", { class: "tiles" }),
    fault: el("p", { class: "fault", role: "alert", hidden: true }),
    sessions: el("div", {
      class: "table-holder",
      tabindex: "0",
      role: "region",
      "aria-label": "Sessions",
    }),
    count: el("span", { class: "count" }),
    plots: el("div", { class: "plots" }),
    channels: el("section", { hidden: true }),
  };
  main.replaceChildren(
    el("h1", { class: "off-screen" }, "Administration"),
    parts.fault,
    parts.tiles,
    el(
      "section",
      {},
      el("div", { class: "section-head" }, el("h2", {}, "Sessions"), parts.count),
      parts.sessions,
    ),
    el("section", {}, el("h2", {}, "The last hour"), parts.plots),
    parts.channels,
  );
  const mine = generation;
  const every = (period, work) => {
    let isBusy = false;
    const run = async () => {
      // A slow answer is not asked for twice; a page that nobody sees asks nothing.
      if (isBusy || document.hidden) return;
      isBusy = true;
      try {
        await work(parts);
        parts.fault.hidden = true;
      } catch (error) {
        if (mine !== generation) return;
        if (error instanceof LoginNeeded) showLogin();
        else {
          parts.fault.hidden = false;
          parts.fault.textContent = `The server does not answer: ${error.message}`;
        }
      } finally {
        isBusy = false;
      }
    };
    run();
    timers.push(setInterval(run, period));
  };
  every(SESSIONS_MS, sessions);
  every(SESSIONS_MS, status);
  every(SLOW_MS, history);
  every(SLOW_MS, channels);
}

async function status({ tiles }) {
  const now = await ask("status");
  // A server without users is open to its own machine: there is nobody to log out.
  if (tiles.isConnected) logout.hidden = now.has_users === false;
  const tile = (name, value, more) =>
    el(
      "div",
      { class: "tile panel" },
      el("span", { class: "tile-name" }, name),
      el("strong", {}, value),
      el("span", { class: "tile-more" }, more),
    );
  const shown = (value, text) => (Number.isFinite(value) ? text(value) : "–");
  const whole = (value) => String(Math.round(value));
  const cores = now.cores > 1 ? ` of ${now.cores} cores` : " of a core";
  const used = shown(now.cpu_percent, (value) => `${whole(value / (now.cores ?? 1))} %${cores}`);
  const most = shown(now.capacity_bits_per_s, (value) => `about ${rate(value)} in all`);
  const viewers = now.http_viewers ? `, ${counted(now.http_viewers, "viewer")} over HTTP` : "";
  tiles.replaceChildren(
    tile("Sending", shown(now.bits_per_s, rate), counted(now.sessions ?? 0, "session") + viewers),
    tile(
      "Capacity left",
      shown(now.capacity_left_percent, (value) => `${whole(value)} %`),
      most,
    ),
    tile(
      "CPU cost",
      shown(now.cpu_s_per_gb, (value) => `${value.toFixed(2)} s/GB`),
      used,
    ),
    tile(
      "Version",
      now.version ?? "–",
      shown(now.uptime_s, (value) => `up ${clock(value)}`),
    ),
  );
}

// A column has a name, its text, and perhaps a second line and a kind.
const COLUMNS = [
  {
    name: "Client",
    text: (one) => one.user || "not logged in",
    more: (one) => `${one.address} · ${one.protocol}`,
  },
  {
    name: "Asset",
    text: (one) => one.asset,
    more: (one) => `${one.path ?? "–"} · ${clock(one.duration_s)}`,
  },
  { name: "Rate", text: (one) => rate(one.bits_per_s ?? 0), kind: "number" },
  { name: "Late, 99 %", text: (one) => milliseconds(one.late_ms?.p99), kind: "number" },
  { name: "Loss", text: (one) => percent(one.lost_percent), kind: "number" },
  { name: "Jitter", text: (one) => milliseconds(one.jitter_ms), kind: "number" },
  { name: "Round trip", text: (one) => milliseconds(one.round_trip_ms), kind: "number" },
];

// Place of the state: what an administrator looks for stands before the figures.
const STATE_AT = 2;

function milliseconds(value) {
  return Number.isFinite(value) ? `${value.toFixed(value < 10 ? 1 : 0)} ms` : "–";
}

function percent(value) {
  return Number.isFinite(value) ? `${value.toFixed(1)} %` : "–";
}

// Rows stay the same elements while a session lasts: a button under the pointer does not go away.
async function sessions({ sessions: holder, count }) {
  const { sessions: listed = [] } = await ask("sessions");
  count.textContent = listed.length ? counted(listed.length, "session") : "";
  if (listed.length === 0) {
    holder.replaceChildren(el("p", { class: "quiet panel" }, "Nobody plays anything now."));
    return;
  }
  let body = holder.querySelector("tbody");
  if (!body) {
    const head = (name, kind = "") => el("th", { scope: "col", class: kind }, name);
    const heads = COLUMNS.map(({ name, kind }) => head(name, kind));
    heads.splice(STATE_AT, 0, head("State"));
    heads.push(head(el("span", { class: "off-screen" }, "Actions")));
    body = el("tbody");
    holder.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  }
  const ids = new Set(listed.map(({ id }) => String(id)));
  for (const row of [...body.children]) if (!ids.has(row.dataset.id)) row.remove();
  const known = new Map([...body.children].map((row) => [row.dataset.id, row]));
  let place = body.firstElementChild;
  for (const one of listed) {
    const row = known.get(String(one.id)) ?? newRow(one);
    COLUMNS.forEach(({ name, text, more }) => {
      const cell = row.querySelector(`[data-name="${name}"]`);
      show(cell.firstChild, text(one));
      if (more) show(cell.lastChild, more(one));
    });
    const [word, kind] = CAUSES[one.cause] ?? [one.cause ?? "–", "warn"];
    const state = row.querySelector(".state");
    state.className = `state ${kind}`;
    state.firstChild.textContent = word;
    state.lastChild.textContent = one.cause === "none" ? "" : (one.cause_text ?? "");
    // A row that is moved loses the keyboard focus.
    if (row === place) place = place.nextElementSibling;
    else body.insertBefore(row, place);
  }
}

function newRow(one) {
  const cells = COLUMNS.map(({ name, kind, more }) =>
    el(
      "td",
      { class: kind ?? "", "data-name": name },
      el("span", { dir: "auto" }),
      more ? el("small", { dir: "auto" }) : null,
    ),
  );
  const state = el("span", { class: "state" }, el("b", {}), el("small", {}));
  const button = el(
    "button",
    {
      type: "button",
      class: "button small danger",
      "aria-label": `End the session of ${one.address}`,
      onclick: () => confirmEnd(one),
    },
    "End",
  );
  cells.splice(STATE_AT, 0, el("td", { "data-name": "State", class: "state-cell" }, state));
  return el("tr", { "data-id": String(one.id) }, cells, el("td", {}, button));
}

// Changes a text where it has changed: what somebody selects stays selected.
function show(element, text) {
  const shown = String(text ?? "–");
  if (element.textContent !== shown) element.textContent = shown;
}

function confirmEnd(one) {
  const said = el("p", { role: "alert" });
  const cancel = el("button", { type: "button", class: "button" }, "Cancel");
  const end = el("button", { type: "button", class: "button danger" }, "End session");
  const who = one.user ? `${one.user} at ${one.address}` : one.address;
  const dialog = el(
    "dialog",
    { "aria-labelledby": "end-title" },
    el("div", { class: "dialog-head" }, el("h2", { id: "end-title" }, "End this session?")),
    el(
      "p",
      {},
      "It stops for ",
      el("b", { dir: "auto" }, who),
      ": ",
      el("span", { dir: "auto" }, one.asset ?? ""),
    ),
    said,
    el("div", { class: "dialog-buttons" }, cancel, end),
  );
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  end.addEventListener("click", async () => {
    end.disabled = true;
    try {
      await ask(`sessions/${encodeURIComponent(one.id)}`, { method: "DELETE" });
      document.querySelector(`tr[data-id="${CSS.escape(String(one.id))}"]`)?.remove();
      dialog.close();
      announce("The session was ended");
    } catch (error) {
      said.textContent = error.message;
      end.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  cancel.focus();
}

async function history({ plots }) {
  // A value that somebody reads is not taken away.
  if (plots.querySelector("svg:focus, svg:hover")) return;
  const { samples = [] } = await ask("history");
  const share = (value) => `${Math.round(value * 10) / 10} %`;
  const late = (value) =>
    value >= 1000
      ? `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} ms`
      : `${Math.round(value)} µs`;
  plots.replaceChildren(
    plot({
      title: "Sent",
      samples,
      lines: [{ field: "bits_per_s", name: "Sent" }],
      format: rate,
      least: 1e6,
    }),
    plot({
      title: "Clients",
      samples,
      lines: [
        { field: "sessions", name: "Sessions" },
        { field: "connections", name: "Connections" },
      ],
      format: (value) => String(Math.round(value * 10) / 10),
      least: 4,
    }),
    plot({
      title: "Processor, of one core",
      samples,
      lines: [{ field: "cpu_percent", name: "Processor" }],
      format: share,
      least: 10,
    }),
    plot({
      title: "CPU cost",
      samples,
      lines: [{ field: "cpu_s_per_gb", name: "Cost" }],
      format: (value) => `${value.toFixed(2)} s/GB`,
      least: 0.2,
    }),
    plot({
      title: "Lateness of 99 %",
      samples,
      lines: [{ field: "late_p99_us", name: "Late" }],
      format: late,
      least: 100,
    }),
    plot({
      title: "Packets lost",
      samples,
      lines: [{ field: "lost_percent", name: "Lost" }],
      format: share,
      least: 1,
    }),
  );
}

async function channels({ channels: section }) {
  const { channels: listed = [] } = await ask("channels");
  section.hidden = listed.length === 0;
  section.replaceChildren(
    el("h2", {}, "Channels"),
    el(
      "ul",
      { class: "channel-list" },
      listed.map((one) => {
        const faults = (one.faults ?? []).map((text) =>
          el("span", { class: "channel-fault", dir: "auto" }, text),
        );
        return el(
          "li",
          { class: "panel" },
          el(
            "span",
            { class: `badge ${one.sending ? "live" : ""}` },
            one.sending ? "On air" : "Off air",
          ),
          el("b", { dir: "auto" }, one.title || one.name),
          el("span", { class: "quiet", dir: "auto" }, one.on_air ?? "nothing is on"),
          el("span", { class: "quiet" }, `${size(one.bytes ?? 0)} sent`),
          ...faults,
        );
      }),
    ),
  );
}
