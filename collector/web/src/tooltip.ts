// What is known of one frame: beside the pointer, and in words for screen readers.

import { append, el, replace } from "./dom";
import { count, duration, percent } from "./format";
import { LAYER_TITLES } from "./palette";
import type { Tree } from "./tree";

export class Tooltip {
  readonly element = el("div", { class: "tooltip", role: "tooltip", hidden: true });
  private shown = -1;
  private tree: Tree | null = null;

  show(tree: Tree, node: number, x: number, y: number): void {
    if (node !== this.shown || tree !== this.tree) {
      replace(this.element, ...describe(tree, node));
      [this.shown, this.tree] = [node, tree];
    }
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = x + 14 + width > innerWidth - 8 ? Math.max(8, x - width - 14) : x + 14;
    const top = y + 18 + height > innerHeight - 8 ? Math.max(8, y - height - 12) : y + 18;
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}

/** File and lines of a node. */
export function place(tree: Tree, node: number): string {
  const { file } = tree.frame(node);
  if (!file) return "";
  const lines = tree.lines.get(node) ?? [];
  const some = lines.slice(0, 8).join(", ") + (lines.length > 8 ? ", \u2026" : "");
  return lines.length > 0 ? `${file}:${some}` : file;
}

/** One sentence, for the live region. */
export function sentence(tree: Tree, node: number): string {
  const frame = tree.frame(node);
  const share = tree.total > 0 ? tree.value(node) / tree.total : 0;
  const amount = tree.options.metric === "launches" ? `${count(tree.value(node))} launches` : duration(tree.value(node));
  return `${frame.name}, ${LAYER_TITLES[frame.layer]}, depth ${tree.depth[node]}, ${percent(share)}, ${amount}`;
}

function describe(tree: Tree, node: number): HTMLElement[] {
  const frame = tree.frame(node);
  const value = tree.value(node);
  const parent = tree.parent[node];
  const head = el("div", { class: "tooltip-head" },
    el("span", { class: `dot dot-${frame.layer}` }),
    el("strong", {}, frame.name || "(no name)"));
  const parts: HTMLElement[] = [head];
  if (frame.full_name && frame.full_name !== frame.name) parts.push(el("div", { class: "full-name" }, frame.full_name));
  const where = place(tree, node);
  if (where) parts.push(el("div", { class: "place" }, where));
  const rows = el("dl", {});
  const row = (term: string, text: string): void => append(rows, el("dt", {}, term), el("dd", {}, text));
  row("Share of total", percent(tree.total > 0 ? value / tree.total : 0));
  if (parent > 0) row("Share of parent", percent(value / tree.value(parent)));
  if (tree.gpuTimeNs[node] > 0) row("GPU time, estimated", duration(tree.gpuTimeNs[node]));
  if (tree.recordedNs[node] > 0) row("GPU time, recorded", duration(tree.recordedNs[node]));
  if (tree.recordedCount[node] > 0) {
    row("Recorded runs", count(tree.recordedCount[node]));
    row("Mean run", duration(tree.recordedNs[node] / tree.recordedCount[node]));
  }
  if (tree.launches[node] > 0) row("Launches, estimated", count(tree.launches[node]));
  parts.push(rows);
  return parts;
}
