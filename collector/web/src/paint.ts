// Paints the visible part of the flame graph.

import type { Palette } from "./palette";
import type { Tree } from "./tree";

/** Height of a depth in pixels. */
export const ROW = 20;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** Narrower boxes are joined into a hint of what is there. */
const NARROW = 0.7;
const PADDING = 5;

export interface Painting {
  tree: Tree;
  palette: Palette;
  /** Nodes that stand out; `null` when all do. */
  lit: Uint8Array | null;
  /** Widths of names in pixels, zero where not measured yet. */
  labelWidths: Float32Array;
  width: number;
  height: number;
  scrollTop: number;
  start: number;
  end: number;
  focus: number;
  hover: number;
  cursor: number;
  place: (node: number) => string;
}

export function paint(context: CanvasRenderingContext2D, painting: Painting): void {
  const { tree, palette, scrollTop, width, height } = painting;
  context.fillStyle = palette.background;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const last = Math.min(tree.levels.length - 2, Math.floor((scrollTop + height) / ROW));
  for (let depth = Math.max(0, Math.floor(scrollTop / ROW)); depth <= last; depth++) paintDepth(context, painting, depth);
  outline(context, painting, painting.hover, 1.5);
  outline(context, painting, painting.cursor, 2.5);
}

function paintDepth(context: CanvasRenderingContext2D, painting: Painting, depth: number): void {
  const { tree, palette, start, width } = painting;
  const scale = width / (painting.end - start);
  const y = depth * ROW - painting.scrollTop;
  const end = tree.levels[depth + 1];
  let node = tree.firstEndingAfter(depth, start);
  while (node < end && tree.left[node] < painting.end) {
    const x = (tree.left[node] - start) * scale;
    const wide = tree.width[node] * scale;
    if (wide < NARROW) {
      context.fillStyle = painting.lit?.[node] ? palette.fill(tree.frame(node), tree.functionOf[node]) : palette.faded;
      context.fillRect(Math.floor(x), y, 1, ROW - 1);
      // On to the next pixel, however many boxes share this one.
      node = Math.max(node + 1, tree.firstEndingAfter(depth, start + (Math.floor(x) + 1) / scale));
      continue;
    }
    const left = Math.max(0, x);
    paintBox(context, painting, node, left, y, Math.min(width, x + wide) - left);
    node++;
  }
}

function paintBox(context: CanvasRenderingContext2D, painting: Painting, node: number, x: number, y: number, wide: number): void {
  const { tree, palette, lit } = painting;
  const id = tree.functionOf[node];
  const faded = lit !== null && lit[node] === 0;
  const above = tree.depth[node] < tree.depth[painting.focus];
  const inner = Math.max(NARROW, wide - 1);
  context.globalAlpha = above && !faded ? 0.55 : 1;
  context.fillStyle = faded ? palette.faded : palette.fill(tree.frame(node), id);
  if (inner > 8) {
    context.beginPath();
    context.roundRect(x, y, inner, ROW - 1, 2.5);
    context.fill();
  } else {
    context.fillRect(x, y, inner, ROW - 1);
  }
  context.globalAlpha = 1;
  if (inner > 26) label(context, painting, node, x + PADDING, y + ROW / 2, inner - 2 * PADDING, faded);
}

function label(
  context: CanvasRenderingContext2D, painting: Painting, node: number,
  x: number, y: number, room: number, faded: boolean,
): void {
  const { tree, palette, labelWidths } = painting;
  const id = tree.functionOf[node];
  const name = tree.frame(node).name.slice(0, 400) || "(no name)";
  let width = id < 0 ? context.measureText(name).width : labelWidths[id];
  if (width === 0) {
    width = context.measureText(name).width;
    labelWidths[id] = width;
  }
  context.fillStyle = faded ? palette.fadedText : palette.text;
  if (width > room) {
    const text = shorten(context, name, width, room);
    if (text) context.fillText(text, x, y);
    return;
  }
  context.fillText(name, x, y);
  const place = room - width > 60 ? painting.place(node) : "";
  if (!place || faded) return;
  const placeWidth = context.measureText(place).width;
  if (placeWidth + 12 > room - width) return;
  context.fillStyle = palette.softText;
  context.fillText(place, x + width + 10, y);
}

/** As much of `name` as fits into `room`, with an ellipsis. */
function shorten(context: CanvasRenderingContext2D, name: string, width: number, room: number): string {
  const characters = [...name];
  let length = Math.floor((room / width) * characters.length);
  for (; length > 0; length--) {
    const text = `${characters.slice(0, length).join("")}\u2026`;
    if (context.measureText(text).width <= room) return length > 1 ? text : "";
  }
  return "";
}

function outline(context: CanvasRenderingContext2D, painting: Painting, node: number, thickness: number): void {
  if (node < 0) return;
  const { tree, start, end, width } = painting;
  const scale = width / (end - start);
  const x = Math.max(0, (tree.left[node] - start) * scale);
  const right = Math.min(width, (tree.left[node] + tree.width[node] - start) * scale);
  if (right <= x) return;
  context.strokeStyle = painting.palette.outline;
  context.lineWidth = thickness;
  const inset = thickness / 2;
  context.strokeRect(x + inset, tree.depth[node] * ROW - painting.scrollTop + inset, Math.max(1, right - x - 1 - thickness), ROW - 1 - thickness);
}
