// Dark or light: the system's preference, unless chosen here. The choice is stored in this browser.

const KEY = "spangap.theme";
export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    // A browser may refuse to store it; the choice then lasts as long as the page.
    return null;
  }
}

/** Stores a setting in this browser; an empty one is removed. */
export function keep(key: string, value: string): void {
  try {
    if (value === "") localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // See above.
  }
}

export const kept = (key: string): string => stored(key) ?? "";

export function theme(): Theme {
  return THEMES.find((one) => one === document.documentElement.dataset["theme"]) ?? "system";
}

export function setTheme(to: Theme): void {
  if (to === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = to;
  keep(KEY, to === "system" ? "" : to);
  dispatchEvent(new Event("themechange"));
}

export function restoreTheme(): void {
  const was = THEMES.find((one) => one === stored(KEY));
  if (was && was !== "system") document.documentElement.dataset["theme"] = was;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
}

/** The next choice: first the one that looks different from what the system has, so that each click but the last changes what is seen. */
export function nextOf(now: Theme): Theme {
  const other: Theme[] = matchMedia("(prefers-color-scheme: dark)").matches ? ["light", "dark"] : ["dark", "light"];
  const order: Theme[] = ["system", ...other];
  return order[(order.indexOf(now) + 1) % order.length] ?? "system";
}

export function isDark(): boolean {
  const chosen = theme();
  return chosen === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}
