// The stacks of one view as a tree in columns: one array per property, one entry per node, node 0 above all.
//
// Nodes are in breadth-first order with the heaviest child first, so each depth is a contiguous run that is sorted by
// position: drawing and hit tests find their first node by binary search.

import type { Frame, Metric, Profile, Stack, View } from "./profile";

export interface TreeOptions {
  view: View;
  metric: Metric;
  /** Leaves on top, callers below. */
  inverted: boolean;
}

export class Tree {
  constructor(
    readonly profile: Profile,
    readonly options: TreeOptions,
    readonly functions: FunctionTable,
    /** Index into `functions.list`; -1 for the root. */
    readonly functionOf: Int32Array,
    readonly parent: Int32Array,
    readonly depth: Int32Array,
    /** First child and one past the last; children are contiguous. */
    readonly childStart: Int32Array,
    readonly childEnd: Int32Array,
    /** Left edge and width as shares of the whole. */
    readonly left: Float64Array,
    readonly width: Float64Array,
    readonly gpuTimeNs: Float64Array,
    readonly recordedNs: Float64Array,
    readonly recordedCount: Float64Array,
    readonly launches: Float64Array,
    /** First node of each depth, and at the end the number of nodes. */
    readonly levels: Int32Array,
    /** Lines of the nodes whose frames differ only in their line. */
    readonly lines: Map<number, number[]>,
  ) {}

  get size(): number {
    return this.parent.length;
  }

  get total(): number {
    return this.value(0);
  }

  value(node: number): number {
    switch (this.options.metric) {
      case "gpu_time_ns": return this.gpuTimeNs[node];
      case "recorded_gpu_time_ns": return this.recordedNs[node];
      case "launches": return this.launches[node];
    }
  }

  frame(node: number): Frame {
    return node === 0 ? ROOT : this.functions.list[this.functionOf[node]];
  }

  /** From the root to `node`. */
  path(node: number): number[] {
    const path = [];
    for (let at = node; at >= 0; at = this.parent[at]) path.push(at);
    return path.reverse();
  }

  /** The node of `depth` that covers `x`, a share of the whole, or -1. */
  at(depth: number, x: number): number {
    if (depth < 0 || depth >= this.levels.length - 1) return -1;
    const node = this.firstEndingAfter(depth, x);
    return node < this.levels[depth + 1] && this.left[node] <= x ? node : -1;
  }

  /** The first node of `depth` whose right edge is beyond `x`. */
  firstEndingAfter(depth: number, x: number): number {
    let low = this.levels[depth];
    let high = this.levels[depth + 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.left[middle] + this.width[middle] > x) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

const ROOT: Frame = { layer: "process", name: "all" };

/** Frames that differ only in their line are one function and share a node. */
export class FunctionTable {
  readonly list: Frame[] = [];
  readonly ofFrame: Int32Array;

  constructor(frames: readonly Frame[]) {
    const ids = new Map<string, number>();
    this.ofFrame = new Int32Array(frames.length);
    frames.forEach((frame, index) => {
      const key = JSON.stringify([frame.layer, frame.name, frame.full_name, frame.file]);
      let id = ids.get(key);
      if (id === undefined) {
        id = this.list.length;
        ids.set(key, id);
        this.list.push(frame);
      }
      this.ofFrame[index] = id;
    });
  }
}

/** A node while the tree is built. */
class Draft {
  readonly children = new Map<number, Draft>();
  gpuTimeNs = 0;
  recordedNs = 0;
  recordedCount = 0;
  launches = 0;
  lines: Set<number> | null = null;
  constructor(readonly functionId: number) {}
}

export function buildTree(profile: Profile, functions: FunctionTable, options: TreeOptions): Tree {
  const root = draftTree(profile, functions, options);
  const value = (draft: Draft): number =>
    options.metric === "gpu_time_ns" ? draft.gpuTimeNs : options.metric === "launches" ? draft.launches : draft.recordedNs;

  const drafts: Draft[] = [root];
  const parents: number[] = [-1];
  const childStart: number[] = [];
  const childEnd: number[] = [];
  for (let node = 0; node < drafts.length; node++) {
    childStart.push(drafts.length);
    const children = [...drafts[node].children.values()].sort((a, b) => value(b) - value(a) || a.functionId - b.functionId);
    for (const child of children) {
      drafts.push(child);
      parents.push(node);
    }
    childEnd.push(drafts.length);
  }
  return toColumns(profile, functions, options, drafts, parents, childStart, childEnd, value);
}

/** Merges the stacks that weigh anything in this metric; the others only add to the frames that are there. */
function draftTree(profile: Profile, functions: FunctionTable, options: TreeOptions): Draft {
  const root = new Draft(-1);
  const weighs = (stack: Stack): boolean => stack[options.metric] > 0;
  for (const stack of profile.stacks) if (weighs(stack)) addStack(root, stack, profile, functions, options, true);
  for (const stack of profile.stacks) if (!weighs(stack)) addStack(root, stack, profile, functions, options, false);
  return root;
}

/** Adds `stack` to all its nodes, or, where nodes may not be created, to those from the root on that are there. */
function addStack(root: Draft, stack: Stack, profile: Profile, functions: FunctionTable, options: TreeOptions, create: boolean): void {
  const frames = options.view === "capture" ? stack.capture ?? stack.launch : stack.launch;
  let draft = root;
  add(draft, stack);
  for (let step = 0; step < frames.length; step++) {
    const frame = frames[options.inverted ? frames.length - 1 - step : step];
    const id = functions.ofFrame[frame];
    let child = draft.children.get(id);
    if (!child) {
      if (!create) return;
      child = new Draft(id);
      draft.children.set(id, child);
    }
    const line = profile.frames[frame].line;
    if (create && line !== undefined) (child.lines ??= new Set()).add(line);
    add(child, stack);
    draft = child;
  }
}

function add(draft: Draft, stack: Stack): void {
  draft.gpuTimeNs += stack.gpu_time_ns;
  draft.recordedNs += stack.recorded_gpu_time_ns;
  draft.recordedCount += stack.recorded_count;
  draft.launches += stack.launches;
}

function toColumns(
  profile: Profile,
  functions: FunctionTable,
  options: TreeOptions,
  drafts: Draft[],
  parents: number[],
  childStart: number[],
  childEnd: number[],
  value: (draft: Draft) => number,
): Tree {
  const size = drafts.length;
  const left = new Float64Array(size);
  const width = new Float64Array(size);
  const depth = new Int32Array(size);
  const levels: number[] = [];
  const lines = new Map<number, number[]>();
  const total = value(drafts[0]) || 1;
  for (let node = 0; node < size; node++) {
    depth[node] = node === 0 ? 0 : depth[parents[node]] + 1;
    if (depth[node] === levels.length) levels.push(node);
    width[node] = node === 0 ? 1 : value(drafts[node]) / total;
    let x = left[node];
    for (let child = childStart[node]; child < childEnd[node]; child++) {
      left[child] = x;
      x += value(drafts[child]) / total;
    }
    const seen = drafts[node].lines;
    if (seen) lines.set(node, [...seen].sort((a, b) => a - b));
  }
  levels.push(size);
  const column = (get: (draft: Draft) => number): Float64Array => Float64Array.from(drafts, get);
  return new Tree(
    profile, options, functions,
    Int32Array.from(drafts, (draft) => draft.functionId), Int32Array.from(parents), depth,
    Int32Array.from(childStart), Int32Array.from(childEnd), left, width,
    column((draft) => draft.gpuTimeNs), column((draft) => draft.recordedNs),
    column((draft) => draft.recordedCount), column((draft) => draft.launches),
    Int32Array.from(levels), lines,
  );
}
