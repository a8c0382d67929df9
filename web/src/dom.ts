// Creates elements. Text is only ever inserted as text nodes, so a service's name can never become markup.

type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined>;

const SVG = "http://www.w3.org/2000/svg";

function fill(element: Element, attributes: Attributes, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...present(children));
}

function present(children: Child[]): (Node | string)[] {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "number" ? String(child) : child));
}

/** A new HTML element. Attributes that are null, undefined or false are left out. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** A new SVG element. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

/** Replaces the children of an element. */
export function refill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...present(children));
}

/** The page's element with this id. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

let probe: HTMLElement | null = null;

/** Resolved value of a colour variable of the style sheet in the current theme, with `percent` as its opacity. */
export function cssColour(name: string, percent = 100): string {
  if (!probe) {
    probe = el("span", { hidden: true });
    document.body.append(probe);
  }
  probe.style.color = percent === 100 ? `var(${name})` : `color-mix(in srgb, var(${name}) ${percent}%, transparent)`;
  return getComputedStyle(probe).color;
}
