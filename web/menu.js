// SPDX-License-Identifier: MIT OR Apache-2.0
// menu: a button that opens a list of choices, one of which is checked.
//
// Sources: WAI-ARIA Authoring Practices, "Menu Button Pattern".

import { el } from "./dom.js";
import { icon } from "./icons.js";

let count = 0;

// Returns a button and its menu in one element. `choices` is asked each time it opens:
// [{ label, isChecked, choose }].
export function menuButton({ name, label, picture, choices }) {
  count += 1;
  const id = `menu-${count}`;
  const button = el(
    "button",
    {
      type: "button",
      class: "control",
      "data-control": name,
      "data-icon": picture,
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      "aria-controls": id,
      "aria-label": label,
      title: label,
    },
    icon(picture),
  );
  const list = el("div", { id, role: "menu", class: "menu", "aria-label": label, hidden: true });
  const holder = el("div", { class: "menu-holder" }, button, list);
  const items = () => [...list.querySelectorAll("[role=menuitemradio]")];

  const close = (returnsFocus) => {
    list.hidden = true;
    button.setAttribute("aria-expanded", "false");
    if (returnsFocus) button.focus();
  };
  const open = () => {
    const rows = choices().map(({ label: text, isChecked, choose }) =>
      el(
        "button",
        {
          type: "button",
          role: "menuitemradio",
          "aria-checked": String(Boolean(isChecked)),
          tabindex: "-1",
          onclick: () => {
            choose();
            close(true);
          },
        },
        el("span", { class: "tick" }, icon("check")),
        el("span", { dir: "auto" }, text),
      ),
    );
    list.replaceChildren(el("div", { class: "menu-title", "aria-hidden": "true" }, label), ...rows);
    list.hidden = false;
    button.setAttribute("aria-expanded", "true");
    (items().find((row) => row.getAttribute("aria-checked") === "true") ?? items()[0])?.focus();
  };
  button.addEventListener("click", () => (list.hidden ? open() : close(false)));
  holder.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const [rows, at] = [items(), items().indexOf(document.activeElement)];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) rows[(at + step + rows.length) % rows.length]?.focus();
    else if (event.key === "Home") rows[0]?.focus();
    else if (event.key === "End") rows.at(-1)?.focus();
    else if (event.key === "Escape") close(true);
    else if (event.key === "Tab") close(false);
    else return;
    if (event.key !== "Tab") event.preventDefault();
    // The player's own keys are not meant here.
    event.stopPropagation();
  });
  holder.addEventListener("focusout", (event) => {
    if (!holder.contains(event.relatedTarget)) close(false);
  });
  return { holder, button, isOpen: () => !list.hidden };
}
