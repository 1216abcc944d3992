// The profile as the collector writes it: collector/src/export/json.rs documents the keys.

export type Layer = "process" | "python" | "native" | "cuda_api" | "graph" | "kernel";
export const LAYERS: readonly Layer[] = ["process", "python", "native", "cuda_api", "graph", "kernel"];

export interface Weights {
  gpu_time_ns: number;
  recorded_gpu_time_ns: number;
  recorded_count: number;
  launches: number;
}

export interface Frame {
  layer: Layer;
  name: string;
  full_name?: string;
  file?: string;
  line?: number;
}

export interface Stack extends Weights {
  launch: number[];
  capture?: number[];
  process_id: number;
  device: number | null;
}

export interface Kernel extends Weights {
  name: string;
  full_name: string;
  share: number;
  mean_ns: number;
  joined_share: number;
  captured_share: number | null;
}

export interface Profile {
  format: string;
  version: number;
  meta: {
    title: string;
    launchscope_version: string;
    start_wall_ms: number;
    duration_ns: number;
    window_open_ns: number;
    window_count: number;
    labels: Record<string, string>;
  };
  totals: Weights & { joined_share: number };
  frames: Frame[];
  stacks: Stack[];
  kernels: Kernel[];
  ledger: { key: string; text: string; count: number; is_loss: boolean }[];
  statuses: { process_id: number; name: string; text: string; detail: string; holds: boolean; needs_attention: boolean }[];
  hooks: { process_id: number; name: string; way: string; hits: number }[];
  folded?: { below_share: number; frames: number };
}

export type View = "launch" | "capture";
export type Metric = "gpu_time_ns" | "recorded_gpu_time_ns" | "launches";

export const METRICS: readonly { id: Metric; title: string; hint: string }[] = [
  { id: "gpu_time_ns", title: "GPU time", hint: "Estimated for the whole run: exact launch counts times sampled durations" },
  { id: "recorded_gpu_time_ns", title: "Recorded", hint: "Only what CUPTI recorded in its windows, not scaled up" },
  { id: "launches", title: "Launches", hint: "Launches of kernels and graphs, estimated from sampled stacks" },
];

/** Reads the profile that the collector put into the page. */
export function readProfile(): Profile {
  const element = document.getElementById("profile-data");
  const profile = JSON.parse(element?.textContent ?? "") as Profile;
  if (profile.format !== "launchscope-profile" || profile.version !== 1) {
    throw new Error(`this page reads launchscope-profile version 1, not ${profile.format} version ${profile.version}`);
  }
  for (const named of [...profile.frames, ...profile.kernels]) {
    named.name = visible(named.name);
    if (named.full_name) named.full_name = visible(named.full_name);
  }
  return profile;
}

/** `name` with escapes for characters that are invisible or turn the text around them, so that a name reads as what it is. */
function visible(name: string): string {
  return name.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (character) =>
    character === "\n" ? "\\n" : character === "\t" ? "\\t" : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
