// Small helpers that build elements. Text only ever becomes a text node, never markup.

export type Child = Node | string | null | undefined | false;
type Properties = Record<string, string | number | boolean | ((event: never) => void) | undefined>;

/** An element with properties (`on...` are listeners, `class` and `aria-...` attributes) and children. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value as EventListener);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, ...children);
  return element;
}

export function append(parent: Element, ...children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) parent.append(child);
  }
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, ...children);
}

export interface Choice<T extends string> {
  id: T;
  title: string;
  hint: string;
}

/** Buttons of which one is pressed. */
export class Segments<T extends string> {
  readonly element: HTMLElement;
  private readonly buttons = new Map<T, HTMLButtonElement>();

  constructor(label: string, choices: readonly Choice<T>[], onChoose: (id: T) => void) {
    this.element = el("div", { class: "segments", role: "group", "aria-label": label });
    for (const choice of choices) {
      const button = el("button", { type: "button", title: choice.hint, "data-id": choice.id, onclick: () => onChoose(choice.id) }, choice.title);
      this.buttons.set(choice.id, button);
      this.element.append(button);
    }
  }

  set(id: T): void {
    for (const [key, button] of this.buttons) button.setAttribute("aria-pressed", String(key === id));
  }
}
