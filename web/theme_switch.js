// SPDX-License-Identifier: MIT OR Apache-2.0
// theme_switch: the button that changes the colours: as the system, light, dark.

import { remember, remembered } from "./dom.js";
import { icon } from "./icons.js";

const THEMES = [
  ["system", "system"],
  ["light", "sun"],
  ["dark", "moon"],
];

export function startThemeSwitch(button) {
  const apply = (name) => {
    const [, picture] = THEMES.find(([known]) => known === name) ?? THEMES[0];
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.replaceChildren(icon(picture));
    const label = `Colours: ${name === "system" ? "as the system" : name}`;
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  const known = () => remembered("theme") ?? "system";
  button.addEventListener("click", () => {
    const at = THEMES.findIndex(([name]) => name === known());
    const [next] = THEMES[(at + 1) % THEMES.length];
    remember("theme", next === "system" ? null : next);
    apply(next);
  });
  apply(known());
}
