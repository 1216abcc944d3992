// Search: which functions match, and what share of the whole they cover.

import type { Frame } from "./profile";
import type { FunctionTable, Tree } from "./tree";

export interface Matches {
  /** One entry per function. */
  functions: Uint8Array;
  /** Why the query could not be used as a regular expression; it was taken as plain text. */
  note: string;
}

/** Functions whose name, full name or file match: `/.../` is a regular expression, anything else plain text without case. */
export function match(table: FunctionTable, query: string): Matches | null {
  const text = query.trim();
  if (text === "") return null;
  let test = (candidate: string): boolean => candidate.toLowerCase().includes(text.toLowerCase());
  let note = "";
  if (/[\\^$*+?()[\]{}|]|\.[*+]/.test(text) || /^\/.+\/$/.test(text)) {
    const source = /^\/.+\/$/.test(text) ? text.slice(1, -1) : text;
    try {
      const expression = new RegExp(source, "i");
      const plain = test;
      test = (candidate) => expression.test(candidate) || plain(candidate);
    } catch {
      note = "not a regular expression, taken as text";
    }
  }
  return where(table, (frame) => test(frame.name) || test(frame.full_name ?? "") || test(frame.file ?? ""), note);
}

/** Functions for which `keep` holds. */
export function where(table: FunctionTable, keep: (frame: Frame) => boolean, note = ""): Matches {
  return { functions: Uint8Array.from(table.list, (frame) => (keep(frame) ? 1 : 0)), note };
}

/** The nodes that match. */
export interface Marked {
  /** What they weigh, each part of the graph counted once. */
  value: number;
  nodes: number;
  /** One entry per node, 1 where it is to stand out: the matches, and in an inverted graph also the callers below them. */
  lit: Uint8Array;
}

export function mark(tree: Tree, matches: Matches): Marked {
  const lit = new Uint8Array(tree.size);
  const inside = new Uint8Array(tree.size);
  let value = 0;
  let nodes = 0;
  for (let node = 1; node < tree.size; node++) {
    const hit = matches.functions[tree.functionOf[node]];
    const above = inside[tree.parent[node]];
    if (hit) nodes++;
    if (hit && !above) value += tree.value(node);
    inside[node] = hit || above ? 1 : 0;
    lit[node] = tree.options.inverted ? inside[node] : hit;
  }
  return { value, nodes, lit };
}
