// SPDX-License-Identifier: MIT OR Apache-2.0
// api: what the server is asked, and the reason of its refusals in words.

import { ROOT, carried, withBytes } from "./addresses.js";

// Facts of the server, as the latest answer of the index gives them.
export const server = { pictures: true };

// An answer that is none: its status, and the server's own words.
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Returns the reason of a refusal. A proxy in front of the server may answer with a page.
export async function reasonOf(answer) {
  const isText = answer.headers.get("Content-Type")?.startsWith("text/plain");
  if (!isText) return `${answer.status} for ${new URL(answer.url).pathname}`;
  return (await answer.text()).trim().replace(/^\d+ [A-Za-z ]+: /, "");
}

export async function get(address, options = {}) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Refusal(answer.status, await reasonOf(answer));
  return answer;
}

// True for the refusal of what this viewer may not have.
export function isForbidden(error) {
  return error instanceof Refusal && (error.status === 401 || error.status === 403);
}

function offerLogin(isOffered) {
  const link = document.querySelector(".log-in");
  if (link) link.hidden = !isOffered;
}

// Returns a part of the index.
export async function index(query, signal) {
  const parameters = withBytes(new URLSearchParams(query).toString());
  try {
    const answer = await get(carried(`${ROOT.href}index.json?${parameters}`), { signal });
    const found = await answer.json();
    server.pictures = found.pictures !== false;
    offerLogin(found.login === true);
    return found;
  } catch (error) {
    if (isForbidden(error)) offerLogin(true);
    throw error;
  }
}

// Returns the page that follows one of the index.
export async function more(next, signal) {
  return (await get(carried(ROOT.href + next.replace(/^\//, "")), { signal })).json();
}

// Returns the channels; none where there are none, or none that this viewer may see.
export async function channels(signal) {
  const answer = await fetch(carried(`${ROOT.href}channels.json`), { signal });
  if (!answer.ok) return [];
  const list = await answer.json().catch(() => ({}));
  return Array.isArray(list.channels) ? list.channels : [];
}
