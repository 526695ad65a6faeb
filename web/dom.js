// SPDX-License-Identifier: MIT OR Apache-2.0
// dom: elements of the page, made without markup: text is text whatever a file's name holds.

const SVG = "http://www.w3.org/2000/svg";

// Returns an element. Attributes that are functions listen to events ("onclick"); false and null
// are left out, true is an empty value. Children are nodes or texts.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return element;
}

// Returns an element of SVG.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Says something to screen readers without moving the focus.
export function announce(text) {
  const status = document.querySelector("#status");
  if (status) status.textContent = text;
}

// Shows a short message for a moment.
export function toast(text) {
  document.querySelector(".toast")?.remove();
  const shown = el("div", { class: "toast" }, text);
  document.body.append(shown);
  announce(text);
  setTimeout(() => shown.remove(), 2500);
}

// Remembers small choices, where the browser lets us.
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`pagewire.${name}`);
    else localStorage.setItem(`pagewire.${name}`, value);
  } catch {
    // Storage is off: the choice lasts as long as the page.
  }
}

export function remembered(name) {
  try {
    return localStorage.getItem(`pagewire.${name}`);
  } catch {
    return null;
  }
}
