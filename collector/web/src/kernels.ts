// The table of kernels: sortable, a click highlights a kernel in the graph and shows its full name.

import { el, replace } from "./dom";
import { count, duration, percent } from "./format";
import type { Kernel } from "./profile";

const FIRST_ROWS = 25;

type Column = "name" | "share" | "gpu_time_ns" | "recorded_count" | "mean_ns" | "joined_share" | "captured_share";
const COLUMNS: readonly { id: Column; title: string; hint: string }[] = [
  { id: "name", title: "Kernel", hint: "Sort by name" },
  { id: "share", title: "Share", hint: "Share of all estimated GPU time" },
  { id: "gpu_time_ns", title: "GPU time", hint: "Estimated for the whole run" },
  { id: "recorded_count", title: "Recorded", hint: "Runs that CUPTI recorded in its windows" },
  { id: "mean_ns", title: "Mean", hint: "Mean duration of one recorded run" },
  { id: "joined_share", title: "Joined", hint: "Share of its recorded GPU time that has a launch stack" },
  { id: "captured_share", title: "Captured", hint: "Share of its recorded GPU time in graphs that has a capture stack" },
];

export class KernelTable {
  readonly element: HTMLElement;
  private readonly body = el("tbody", {});
  private readonly more = el("button", { type: "button", class: "more", onclick: () => this.showAll() });
  private readonly headers = new Map<Column, HTMLTableCellElement>();
  private sortBy: Column = "share";
  private ascending = false;
  private all = false;
  private selected: Kernel | null = null;

  constructor(private readonly kernels: readonly Kernel[], private readonly onSelect: (kernel: Kernel | null) => void) {
    const row = el("tr", {});
    for (const column of COLUMNS) {
      const button = el("button", { type: "button", title: column.hint, onclick: () => this.sort(column.id) }, column.title);
      const header = el("th", { scope: "col", class: column.id === "name" ? "name" : "number" }, button);
      this.headers.set(column.id, header);
      row.append(header);
    }
    const table = el("table", { class: "kernels" }, el("thead", {}, row), this.body);
    this.element = el("div", { class: "table-scroll" }, table, this.more);
    this.render();
  }

  /** Selects nothing, without telling the listener. */
  clear(): void {
    this.selected = null;
    this.render();
  }

  private sort(column: Column): void {
    this.ascending = this.sortBy === column ? !this.ascending : column === "name";
    this.sortBy = column;
    this.render();
  }

  private showAll(): void {
    this.all = true;
    this.render();
  }

  private render(): void {
    const key = (kernel: Kernel): number | string => kernel[this.sortBy] ?? -1;
    const sign = this.ascending ? 1 : -1;
    const sorted = [...this.kernels].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : 0));
    const shown = this.all ? sorted : sorted.slice(0, FIRST_ROWS);
    replace(this.body, ...shown.flatMap((kernel) => this.rows(kernel)));
    for (const [column, header] of this.headers) {
      header.setAttribute("aria-sort", column !== this.sortBy ? "none" : this.ascending ? "ascending" : "descending");
    }
    this.more.hidden = shown.length === sorted.length;
    this.more.textContent = `Show all ${count(sorted.length)} kernels`;
  }

  private rows(kernel: Kernel): HTMLElement[] {
    const selected = kernel === this.selected;
    const button = el("button", {
      type: "button",
      class: "kernel-name",
      title: kernel.full_name || kernel.name,
      "aria-pressed": String(selected),
      onclick: () => this.toggle(kernel),
    }, kernel.name || "(no name)");
    const bar = el("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(1, kernel.share) * 50}%`;
    const number = (text: string, isLow = false): HTMLElement => el("td", { class: isLow ? "number low" : "number" }, text);
    const row = el("tr", { class: selected && "selected" },
      el("td", { class: "name" }, button),
      el("td", { class: "number share" }, bar, el("span", {}, percent(kernel.share))),
      number(duration(kernel.gpu_time_ns)),
      number(count(kernel.recorded_count)),
      number(duration(kernel.mean_ns)),
      number(percent(kernel.joined_share), kernel.joined_share < 0.95),
      number(kernel.captured_share === null ? "\u2013" : percent(kernel.captured_share), kernel.captured_share !== null && kernel.captured_share < 0.95));
    if (!selected || !kernel.full_name || kernel.full_name === kernel.name) return [row];
    const full = el("tr", { class: "full" }, el("td", { colspan: String(COLUMNS.length) }, el("div", { class: "full-name" }, kernel.full_name)));
    return [row, full];
  }

  private toggle(kernel: Kernel): void {
    this.selected = this.selected === kernel ? null : kernel;
    const at = [...this.body.querySelectorAll(".kernel-name")].indexOf(document.activeElement as Element);
    this.render();
    // The buttons are new ones; the keyboard stays where it was.
    (this.body.querySelectorAll<HTMLElement>(".kernel-name")[at])?.focus({ preventScroll: true });
    this.onSelect(this.selected);
  }
}
