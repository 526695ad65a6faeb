// SPDX-License-Identifier: MIT OR Apache-2.0
// share: the addresses of a film for other players, to be copied or scanned.

import { addressOf, below } from "./addresses.js";
import { el, svg, toast } from "./dom.js";
import { icon } from "./icons.js";

const hasCodes = () =>
  document.querySelector("meta[name=pagewire]")?.content.split(" ").includes("qr");

// Returns the addresses of a row: [name, address, what for]. Those of HTTP are made here: a server
// behind a proxy does not know the scheme, host and path that the viewer uses.
export function addressesOf(row) {
  const { name } = row;
  const hls = row.playlist ? addressOf(name) : row.hls && below(name, "master.m3u8");
  const listed = [
    ["HLS", hls, "phones, TVs, browsers"],
    ["DASH", row.dash && below(name, "manifest.mpd"), "DASH players"],
    ["RTSP", row.rtsp, "VLC, ffplay, set-top boxes"],
    ["HTTP", row.download && addressOf(name), "the file itself"],
  ];
  return listed.filter(([, address]) => address);
}

export function addressList(row) {
  return el(
    "ul",
    { class: "addresses" },
    addressesOf(row).map(([name, address, use]) => {
      const copy = el(
        "button",
        {
          type: "button",
          class: "button small",
          "aria-label": `Copy the ${name} address`,
          onclick: () => copyText(address, name),
        },
        icon("copy"),
        el("span", {}, "Copy"),
      );
      const code = hasCodes()
        ? el(
            "button",
            {
              type: "button",
              class: "button small",
              "aria-label": `QR code of the ${name} address`,
              onclick: () =>
                showCode(name, address).catch(() => toast("The QR code could not be made")),
            },
            icon("code"),
            el("span", {}, "QR"),
          )
        : null;
      return el(
        "li",
        {},
        el("span", { class: "address-name" }, name, el("small", {}, use)),
        el("code", { tabindex: "0" }, address),
        el("span", { class: "address-buttons" }, copy, code),
      );
    }),
  );
}

async function copyText(text, name) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages of plain http:// have no clipboard: a selection is copied the old way.
    const field = el("textarea", { readonly: true, class: "off-screen" });
    field.value = text;
    document.body.append(field);
    field.select();
    isCopied = document.execCommand("copy");
    field.remove();
  }
  toast(`${name} address ${isCopied ? "copied" : "could not be copied"}`);
}

// Shows a dialog that closes by its button, by Escape and by a click beside it.
export function showDialog(title, ...content) {
  const close = el(
    "button",
    { type: "button", class: "control", "aria-label": "Close" },
    icon("close"),
  );
  const dialog = el(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    el("div", { class: "dialog-head" }, el("h2", { id: "dialog-title" }, title), close),
    ...content,
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  // Only what is in full screen is seen there.
  (document.fullscreenElement ?? document.body).append(dialog);
  dialog.showModal();
}

async function showCode(name, address) {
  const { encode } = await import("./qr.js");
  const { size, data } = encode(address, { border: 4 });
  let path = "";
  data.forEach((row, y) =>
    row.forEach((isDark, x) => {
      if (isDark) path += `M${x} ${y}h1v1h-1z`;
    }),
  );
  const picture = svg(
    "svg",
    {
      viewBox: `0 0 ${size} ${size}`,
      class: "qr",
      role: "img",
      "aria-label": `QR code of ${address}`,
      "shape-rendering": "crispEdges",
    },
    svg("path", { d: path }),
  );
  showDialog(`${name} address`, picture, el("code", {}, address));
}
