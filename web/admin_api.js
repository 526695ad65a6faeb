// SPDX-License-Identifier: MIT OR Apache-2.0
// admin_api: what the administrators' listener is asked.
//
// What changes something is sent as JSON with a header of its own, which no page of another site
// may send.

// The session of the administrator has ended, or there is none yet.
export class LoginNeeded extends Error {}

export async function ask(path, { method = "GET", body } = {}) {
  const headers = { "X-Pagewire": "1" };
  if (method !== "GET") headers["Content-Type"] = "application/json";
  const answer = await fetch(`v1/${path}`, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "same-origin",
    cache: "no-store",
  });
  if (answer.status === 401 && path !== "login") throw new LoginNeeded("log in first");
  const text = await answer.text();
  let json = {};
  try {
    json = text ? JSON.parse(text) : {};
  } catch {
    // A proxy in front may answer with a page.
  }
  if (!answer.ok)
    throw new Error(json.error ?? (text.slice(0, 200).trim() || `status ${answer.status}`));
  return json;
}
