// Colours by layer, read from the style sheet so that canvas and legend agree in light and dark.

import { LAYERS, type Frame, type Layer } from "./profile";

export const LAYER_TITLES: Record<Layer, string> = {
  process: "Process",
  python: "Python",
  native: "Native",
  cuda_api: "CUDA API",
  graph: "Graph",
  kernel: "Kernel, copy or memset",
};

/** Shades per layer, so that neighbours can be told apart. */
const SHADES = 5;

export class Palette {
  readonly text: string;
  readonly softText: string;
  readonly faded: string;
  readonly fadedText: string;
  readonly outline: string;
  readonly background: string;
  readonly root: string;
  private readonly fills = new Map<Layer, string[]>();

  constructor(element: Element) {
    const style = getComputedStyle(element);
    const read = (name: string): string => style.getPropertyValue(name).trim();
    this.text = read("--frame-text");
    this.softText = read("--frame-text-soft");
    this.faded = read("--frame-faded");
    this.fadedText = read("--frame-faded-text");
    this.outline = read("--frame-outline");
    this.background = read("--card");
    this.root = read("--frame-root");
    for (const layer of LAYERS) {
      const base = read(`--layer-${layer}`);
      const towards = read("--frame-shade");
      this.fills.set(layer, Array.from({ length: SHADES }, (_, step) => mix(base, towards, step * 0.045)));
    }
  }

  fill(frame: Frame, functionId: number): string {
    if (functionId < 0) return this.root;
    // A hash of the name, not the id, so that a function keeps its shade from one profile to the next.
    let hash = 2166136261;
    const name = frame.name;
    for (let at = Math.max(0, name.length - 40); at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619);
    return this.fills.get(frame.layer)?.[(hash >>> 8) % SHADES] ?? this.root;
  }
}

/** `part` of the way from one `#rrggbb` colour to another. */
function mix(from: string, to: string, part: number): string {
  const channel = (color: string, at: number): number => parseInt(color.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(channel(from, at) * (1 - part) + channel(to, at) * part));
  return `rgb(${mixed.join(",")})`;
}
