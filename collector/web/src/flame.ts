// The flame graph on a canvas, root on top: drawing, zoom, pan, hit tests, keyboard.
//
// The canvas is only as large as what can be seen; it sticks to the top of a scroller whose spacer has the height of all depths,
// so neither the depth nor the number of frames is limited by the size of a canvas.

import { el } from "./dom";
import { shortPath } from "./format";
import { paint, ROW, type Painting } from "./paint";
import { Palette } from "./palette";
import type { Tree } from "./tree";

const ANIMATION_MS = 170;
/** The narrowest range of the whole that zooming reaches. */
const NARROWEST = 1e-9;
const DRAG_PIXELS = 4;

export interface FlameListener {
  onHover(node: number, x: number, y: number): void;
  onLeave(): void;
  onFocus(node: number): void;
  /** The keyboard moved to a node. */
  onCursor(node: number): void;
}

export class Flame {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private readonly spacer: HTMLElement;
  private palette: Palette | null = null;
  private tree!: Tree;
  private labelWidths = new Float32Array(0);
  private lit: Uint8Array | null = null;
  private start = 0;
  private end = 1;
  private focusNode = 0;
  private hoverNode = -1;
  private cursorNode = -1;
  private frameRequest = 0;
  private animation: { from: [number, number]; to: [number, number]; begin: number } | null = null;

  constructor(private readonly listener: FlameListener) {
    this.canvas = el("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label": "Flame graph",
      "aria-describedby": "flame-keys",
    });
    this.spacer = el("div", { class: "spacer" });
    this.element = el("div", { class: "flame" }, this.canvas, this.spacer);
    this.element.addEventListener("scroll", () => this.requestDraw(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.palette = null;
      this.requestDraw();
    });
    this.listenToPointer();
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("blur", () => this.setCursor(-1));
  }

  get focus(): number {
    return this.focusNode;
  }

  get range(): [number, number] {
    return [this.start, this.end];
  }

  /** Shows another tree; the focus is kept where the same path is in it. */
  setTree(tree: Tree): void {
    const path = this.tree ? this.tree.path(this.focusNode).map((node) => this.tree.functionOf[node]) : [];
    this.tree = tree;
    this.labelWidths = new Float32Array(tree.functions.list.length);
    this.lit = null;
    this.hoverNode = this.cursorNode = -1;
    this.animation = null;
    const focus = find(tree, path);
    this.focusNode = focus;
    this.start = tree.left[focus];
    this.end = this.start + tree.width[focus];
    if (focus === 0) this.element.scrollTop = 0;
    this.resize();
    this.listener.onFocus(focus);
  }

  /** Fades all nodes but those with a 1; `null` fades none. */
  setLit(lit: Uint8Array | null): void {
    this.lit = lit;
    this.requestDraw();
  }

  /** Makes `node` as wide as the graph. */
  zoomTo(node: number): void {
    this.focusNode = node;
    this.animateTo(this.tree.left[node], this.tree.left[node] + this.tree.width[node]);
    this.reveal(node);
    this.listener.onFocus(node);
  }

  /** Zooms by `factor` around `at`, a share of the visible range. */
  zoomBy(factor: number, at = 0.5): void {
    const [start, end] = this.animation?.to ?? this.range;
    const width = Math.min(1, Math.max(NARROWEST, (end - start) / factor));
    this.settle(start + (end - start) * at - width * at, width);
    this.requestDraw();
  }

  private settle(start: number, width: number): void {
    this.animation = null;
    this.start = Math.min(Math.max(0, start), 1 - width);
    this.end = this.start + width;
    let focus = this.focusNode;
    const covers = (node: number): boolean =>
      this.tree.left[node] <= this.start + 1e-12 && this.tree.left[node] + this.tree.width[node] >= this.end - 1e-12;
    while (focus > 0 && !covers(focus)) focus = this.tree.parent[focus];
    if (focus !== this.focusNode) {
      this.focusNode = focus;
      this.listener.onFocus(focus);
    }
  }

  private animateTo(start: number, end: number): void {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      [this.start, this.end] = [start, end];
      this.animation = null;
    } else {
      this.animation = { from: [this.start, this.end], to: [start, end], begin: performance.now() };
    }
    this.requestDraw();
  }

  private reveal(node: number): void {
    const top = this.tree.depth[node] * ROW;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + 2 * ROW > scrollTop + clientHeight) this.element.scrollTop = top - clientHeight / 3;
  }

  private resize(): void {
    if (!this.tree) return;
    const height = (this.tree.levels.length - 1) * ROW + 1;
    const visible = Math.min(height, this.element.clientHeight || height);
    // The element's own height follows from the spacer and is capped by the style sheet.
    this.spacer.style.height = `${height}px`;
    this.canvas.style.height = `${visible}px`;
    this.spacer.style.marginTop = `${-visible}px`;
    this.requestDraw();
  }

  private requestDraw(): void {
    if (this.frameRequest === 0) this.frameRequest = requestAnimationFrame((now) => this.draw(now));
  }

  private draw(now: number): void {
    this.frameRequest = 0;
    if (this.animation) {
      const part = Math.min(1, (now - this.animation.begin) / ANIMATION_MS);
      const eased = 1 - (1 - Math.max(0, part)) ** 3;
      const { from, to } = this.animation;
      this.start = from[0] + (to[0] - from[0]) * eased;
      this.end = from[1] + (to[1] - from[1]) * eased;
      if (part >= 1) {
        [this.start, this.end] = to;
        this.animation = null;
      } else {
        this.requestDraw();
      }
    }
    const width = this.element.clientWidth;
    const height = Math.min(this.element.clientHeight, (this.tree.levels.length - 1) * ROW + 1);
    if (width === 0 || height === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixelWidth || this.canvas.height !== pixelHeight) {
      this.canvas.width = pixelWidth;
      this.canvas.height = pixelHeight;
    }
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.marginTop = `${-height}px`;
    const context = this.canvas.getContext("2d", { alpha: false });
    if (!context) return;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.palette ??= new Palette(this.element);
    const painting: Painting = {
      tree: this.tree, palette: this.palette, lit: this.lit, labelWidths: this.labelWidths,
      width, height, scrollTop: this.element.scrollTop, start: this.start, end: this.end,
      focus: this.focusNode, hover: this.hoverNode, cursor: this.cursorNode, place: placeLabel(this.tree),
    };
    paint(context, painting);
  }

  /** The node under a point of the viewport, or -1. */
  nodeAt(clientX: number, clientY: number): number {
    const box = this.canvas.getBoundingClientRect();
    const x = this.start + ((clientX - box.left) / box.width) * (this.end - this.start);
    const depth = Math.floor((clientY - box.top + this.element.scrollTop) / ROW);
    return clientX < box.left || clientX >= box.right ? -1 : this.tree.at(depth, x);
  }

  private listenToPointer(): void {
    let down: { x: number; y: number; start: number; dragged: boolean } | null = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) down = { x: event.clientX, y: event.clientY, start: this.start, dragged: false };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const width = this.end - this.start;
      if (down && !down.dragged && width < 1 && Math.abs(event.clientX - down.x) > DRAG_PIXELS) {
        down.dragged = true;
        this.canvas.setPointerCapture(event.pointerId);
        this.element.classList.add("dragging");
      }
      if (down?.dragged) {
        this.settle(down.start - ((event.clientX - down.x) / this.canvas.clientWidth) * width, width);
        this.listener.onLeave();
        this.requestDraw();
        return;
      }
      this.hover(event);
    });
    const up = (event: PointerEvent): void => {
      this.element.classList.remove("dragging");
      const clicked = event.type === "pointerup" && down && !down.dragged;
      down = null;
      if (!clicked) return;
      const node = this.nodeAt(event.clientX, event.clientY);
      if (node >= 0) this.zoomTo(node);
    };
    this.canvas.addEventListener("pointerup", up);
    this.canvas.addEventListener("pointercancel", up);
    this.canvas.addEventListener("pointerleave", () => {
      this.hoverNode = -1;
      this.listener.onLeave();
      this.requestDraw();
    });
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
  }

  private hover(event: PointerEvent): void {
    const node = this.nodeAt(event.clientX, event.clientY);
    this.canvas.style.cursor = node >= 0 ? "pointer" : "default";
    if (node !== this.hoverNode) this.requestDraw();
    this.hoverNode = node;
    if (node >= 0) this.listener.onHover(node, event.clientX, event.clientY);
    else this.listener.onLeave();
  }

  private onWheel(event: WheelEvent): void {
    const box = this.canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * 0.004), (event.clientX - box.left) / box.width);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && this.end - this.start < 1) {
      event.preventDefault();
      const width = this.end - this.start;
      this.settle(this.start + (event.deltaX / box.width) * width, width);
      this.requestDraw();
    }
  }

  private setCursor(node: number): void {
    this.cursorNode = node;
    if (node >= 0) {
      this.reveal(node);
      this.listener.onCursor(node);
    }
    this.requestDraw();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { tree } = this;
    const node = this.cursorNode < 0 ? this.focusNode : this.cursorNode;
    const parent = tree.parent[node];
    let next = -1;
    if (event.key === "Enter" || event.key === " ") this.zoomTo(node);
    else if (event.key === "ArrowUp") next = Math.max(0, parent);
    else if (event.key === "ArrowDown") next = tree.childStart[node] < tree.childEnd[node] ? tree.childStart[node] : node;
    else if (event.key === "ArrowRight") next = parent >= 0 && node + 1 < tree.childEnd[parent] ? node + 1 : node;
    else if (event.key === "ArrowLeft") next = parent >= 0 && node > tree.childStart[parent] ? node - 1 : node;
    else return;
    event.preventDefault();
    if (next >= 0) this.setCursor(next);
  }
}

/** Where a frame is, in short, for labels with room to spare; cached per function. */
function placeLabel(tree: Tree): (node: number) => string {
  return (node) => {
    const frame = tree.frame(node);
    if (!frame.file) return "";
    const lines = tree.lines.get(node);
    const file = frame.layer === "python" ? shortPath(frame.file).split("/").pop() : shortPath(frame.file);
    return lines?.length === 1 ? `${file}:${lines[0]}` : file ?? "";
  };
}

/** The node at the end of a path of functions, or the root where there is none. */
function find(tree: Tree, path: number[]): number {
  let node = 0;
  for (const wanted of path.slice(1)) {
    let found = -1;
    for (let child = tree.childStart[node]; child < tree.childEnd[node] && found < 0; child++) {
      if (tree.functionOf[child] === wanted) found = child;
    }
    if (found < 0) return 0;
    node = found;
  }
  return node;
}
