// The graph as nested lists that open on demand: for keyboards, screen readers and copying text.

import { el } from "./dom";
import { count, duration, percent } from "./format";
import { place } from "./tooltip";
import type { Tree } from "./tree";

/** Frames that one list shows at once. */
const MOST_CHILDREN = 50;

export function outline(tree: Tree): HTMLElement {
  return list(tree, 0);
}

function list(tree: Tree, node: number): HTMLElement {
  const element = el("ul", {});
  const end = Math.min(tree.childEnd[node], tree.childStart[node] + MOST_CHILDREN);
  for (let child = tree.childStart[node]; child < end; child++) element.append(el("li", {}, entry(tree, child)));
  const left = tree.childEnd[node] - end;
  if (left > 0) element.append(el("li", { class: "note" }, `and ${count(left)} smaller ones`));
  return element;
}

function entry(tree: Tree, node: number): HTMLElement {
  // A chain without branches opens as one, so that only decisions cost a key press.
  const chain = [node];
  let last = node;
  while (tree.childEnd[last] - tree.childStart[last] === 1 && chain.length < 40) {
    last = tree.childStart[last];
    chain.push(last);
  }
  const rows = chain.map((at) => row(tree, at));
  if (tree.childStart[last] === tree.childEnd[last]) return el("div", { class: "leaf" }, ...rows);
  const details = el("details", {}, el("summary", {}, ...rows));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(list(tree, last));
  });
  return details;
}

function row(tree: Tree, node: number): HTMLElement {
  const frame = tree.frame(node);
  const amount = tree.options.metric === "launches" ? count(tree.value(node)) : duration(tree.value(node));
  return el("span", { class: "outline-row" },
    el("span", { class: "outline-share" }, percent(tree.value(node) / tree.total)),
    el("span", { class: `dot dot-${frame.layer}` }),
    el("span", { class: "outline-name", title: place(tree, node) }, frame.name || "(no name)"),
    el("span", { class: "note" }, amount));
}
