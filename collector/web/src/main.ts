// The page: reads the profile, builds the parts and joins them.

import { el, replace, Segments } from "./dom";
import { emptiness, hooks, ledger, run, statuses, summary } from "./facts";
import { Flame } from "./flame";
import { count, duration, percent } from "./format";
import { KernelTable } from "./kernels";
import { outline } from "./outline";
import { LAYER_TITLES } from "./palette";
import { LAYERS, METRICS, readProfile, type Frame, type Kernel, type Metric, type Profile, type View } from "./profile";
import { mark, match, where, type Matches } from "./search";
import { sentence, Tooltip } from "./tooltip";
import { buildTree, FunctionTable, type Tree } from "./tree";

const VIEWS: readonly { id: View; title: string; hint: string; sentence: string }[] = [
  {
    id: "launch", title: "Launch view", hint: "Who launched or replayed it (v)",
    sentence: "Who launched the work. A replayed graph hangs under the code that replayed it, with its kernels below it.",
  },
  {
    id: "capture", title: "Capture view", hint: "Which code put the kernel into its graph (v)",
    sentence: "Which code captured each kernel. Kernels of a replayed graph hang under the code that put them into it.",
  },
];
const METRIC_SENTENCES: Record<Metric, string> = {
  gpu_time_ns: "Width is GPU time, estimated for the whole run.",
  recorded_gpu_time_ns: "Width is the GPU time that CUPTI recorded in its windows.",
  launches: "Width is the number of launches, estimated from sampled stacks; a graph counts once per replay.",
};
const INVERTED_SENTENCE = "Inverted: kernels on top, their callers below.";
const LONGEST_TRAIL = 7;

class Page {
  private view: View = "launch";
  private metric: Metric;
  private inverted = false;
  private kernel: Kernel | null = null;
  private tree!: Tree;
  private readonly functions: FunctionTable;
  private readonly flame: Flame;
  private readonly tooltip = new Tooltip();
  private readonly kernels: KernelTable;
  private readonly views = new Segments("View", VIEWS, (id) => this.setView(id));
  private readonly metrics = new Segments("Metric", METRICS, (id) => this.setMetric(id));
  private readonly invert = el("button", { type: "button", class: "toggle", title: "Kernels on top, their callers below (i)", onclick: () => this.toggleInverted() }, "Invert");
  private readonly reset = el("button", { type: "button", class: "toggle", title: "Whole graph (0 or Esc)", onclick: () => this.flame.zoomTo(0) }, "Reset zoom");
  private readonly search = el("input", {
    type: "search", placeholder: "Search: text or regex", "aria-label": "Search frames by text or regular expression",
    autocomplete: "off", spellcheck: "false", oninput: () => this.onSearch(),
  });
  private readonly found = el("output", { class: "found" });
  private readonly explanation = el("p", { class: "explanation" });
  private readonly trail = el("nav", { class: "trail", "aria-label": "Path to the zoomed frame" });
  private readonly stage = el("div", { class: "stage" });
  private readonly live = el("p", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  private readonly outlineBody = el("div", {});
  private readonly outlineBox = el("details", { class: "outline" }, el("summary", {}, "Outline of this graph as text"), this.outlineBody);

  constructor(private readonly profile: Profile) {
    this.functions = new FunctionTable(profile.frames);
    this.metric = METRICS.find(({ id }) => profile.totals[id] > 0)?.id ?? "gpu_time_ns";
    this.flame = new Flame({
      onHover: (node, x, y) => this.tooltip.show(this.tree, node, x, y),
      onLeave: () => this.tooltip.hide(),
      onFocus: (node) => this.showTrail(node),
      onCursor: (node) => (this.live.textContent = sentence(this.tree, node)),
    });
    this.kernels = new KernelTable(profile.kernels, (kernel) => this.selectKernel(kernel));
    this.outlineBox.addEventListener("toggle", () => this.showOutline());
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  mount(app: Element): void {
    const { profile } = this;
    document.title = `${profile.meta.title} \u2013 launchscope`;
    replace(app,
      el("header", {},
        el("div", { class: "brand", "aria-label": "launchscope" }, el("span", { class: "mark", "aria-hidden": "true" }), "launchscope"),
        el("h1", { title: profile.meta.title }, profile.meta.title || "(no title)")),
      summary(profile),
      profile.stacks.length > 0 && statuses(profile),
      el("main", {}, profile.stacks.length > 0 ? this.graphCard() : this.emptyCard(), el("div", { class: "lower" }, this.kernelCard(), this.side())),
      el("footer", {}, `launchscope ${profile.meta.launchscope_version}. This file holds the whole profile and asks the network for nothing.`),
      this.tooltip.element);
    if (profile.stacks.length > 0) this.update();
  }

  /** Stands in for the graph when the run left no stack. */
  private emptyCard(): HTMLElement {
    return el("section", { class: "card", "aria-label": "Why there is no graph" }, emptiness(this.profile, ""));
  }

  private graphCard(): HTMLElement {
    const legend = el("ul", { class: "legend", "aria-label": "Colours" },
      ...LAYERS.map((layer) => el("li", {}, el("span", { class: `dot dot-${layer}` }), LAYER_TITLES[layer])));
    const keys = el("p", { class: "keys", id: "flame-keys" },
      key("/"), " search ", key("v"), " view ", key("i"), " invert ", key("+"), key("\u2212"), key("0"), " zoom ", key("Esc"), " reset ",
      key("\u2190\u2191\u2192\u2193"), " move ", key("Enter"), " zoom in ", key("Ctrl"), "+wheel or drag");
    const { folded } = this.profile;
    return el("section", { class: "card graph", "aria-label": "Flame graph" },
      el("div", { class: "toolbar" }, this.views.element, this.metrics.element, this.invert, this.reset,
        el("div", { class: "search" }, this.found, this.search)),
      this.explanation,
      folded && el("p", { class: "folded" }, `${count(folded.frames)} frames under ${percent(folded.below_share)} of the total are folded into \u201c(frames under \u2026)\u201d on this page; the other formats have them all.`),
      this.trail,
      this.stage,
      el("div", { class: "below" }, legend, keys),
      this.live,
      this.outlineBox);
  }

  private kernelCard(): HTMLElement {
    const { kernels } = this.profile;
    return el("section", { class: "card", "aria-label": "Kernels" },
      el("h2", {}, "Kernels ", el("span", { class: "note" }, kernels.length > 0 ? `${count(kernels.length)} by estimated GPU time; a click marks one in the graph` : "")),
      kernels.length > 0 ? this.kernels.element : el("p", { class: "note" }, "No kernel was recorded."));
  }

  private side(): HTMLElement {
    const { profile } = this;
    const losses = profile.ledger.filter((line) => line.is_loss && line.count > 0).length;
    return el("aside", {},
      el("section", { class: "card", "aria-label": "Ledger" },
        el("h2", {}, "Ledger ", el("span", { class: "note" }, losses > 0 ? "what was seen, and what was lost" : "nothing was lost")),
        ledger(profile)),
      el("section", { class: "card", "aria-label": "Run" }, el("h2", {}, "Run"), run(profile)),
      profile.hooks.length > 0 && el("section", { class: "card", "aria-label": "Hooks" },
        el("details", { class: "plain" }, el("summary", {}, el("h2", {}, "Hooks ", el("span", { class: "note" }, hookNote(profile)))), hooks(profile))));
  }

  private update(): void {
    const options = { view: this.view, metric: this.metric, inverted: this.inverted };
    this.tree = buildTree(this.profile, this.functions, options);
    this.views.set(this.view);
    this.metrics.set(this.metric);
    this.invert.setAttribute("aria-pressed", String(this.inverted));
    const view = VIEWS.find(({ id }) => id === this.view);
    replace(this.explanation, el("strong", {}, `${view?.title}. `), `${view?.sentence} ${METRIC_SENTENCES[this.metric]} ${this.inverted ? INVERTED_SENTENCE : ""}`);
    this.tooltip.hide();
    const title = METRICS.find(({ id }) => id === this.metric)?.title ?? "";
    replace(this.stage, this.tree.size > 1 ? this.flame.element : emptiness(this.profile, title));
    this.flame.setTree(this.tree);
    this.highlight();
    this.showOutline();
  }

  private setView(view: View): void {
    if (view === this.view) return;
    this.view = view;
    this.update();
  }

  private setMetric(metric: Metric): void {
    if (metric === this.metric) return;
    this.metric = metric;
    this.update();
  }

  private toggleInverted(): void {
    this.inverted = !this.inverted;
    this.update();
  }

  private onSearch(): void {
    if (this.kernel) {
      this.kernel = null;
      this.kernels.clear();
    }
    this.highlight();
  }

  private selectKernel(kernel: Kernel | null): void {
    this.kernel = kernel;
    this.search.value = "";
    this.highlight();
    if (kernel && this.inverted) {
      for (let node = this.tree.childStart[0]; node < this.tree.childEnd[0]; node++) {
        if (isKernel(kernel, this.tree.frame(node))) this.flame.zoomTo(node);
      }
    } else if (!kernel && this.inverted) {
      this.flame.zoomTo(0);
    }
  }

  /** Highlights the selected kernel or what the search finds, and says what share that is. */
  private highlight(): void {
    const { kernel } = this;
    const matches: Matches | null = kernel
      ? where(this.functions, (frame) => isKernel(kernel, frame))
      : match(this.functions, this.search.value);
    const marked = matches ? mark(this.tree, matches) : null;
    this.flame.setLit(marked?.lit ?? null);
    this.found.hidden = marked === null;
    if (!matches || !marked) return replace(this.found);
    const { value, nodes } = marked;
    const share = this.tree.total > 0 ? value / this.tree.total : 0;
    const amount = this.metric === "launches" ? `${count(value)} launches` : duration(value);
    replace(this.found, el("strong", {}, percent(share)),
      ` ${amount} in ${count(nodes)} ${nodes === 1 ? "frame" : "frames"}${matches.note ? ` (${matches.note})` : ""}`,
      kernel && el("button", { type: "button", class: "clear", title: "Mark nothing", onclick: () => this.clearMarks() }, "\u00d7"));
  }

  private clearMarks(): void {
    this.kernel = null;
    this.kernels.clear();
    this.search.value = "";
    this.highlight();
  }

  private showTrail(node: number): void {
    const path = this.tree.path(node);
    const hidden = path.length > LONGEST_TRAIL ? path.slice(1, path.length - LONGEST_TRAIL + 1) : [];
    replace(this.trail);
    path.forEach((at, index) => {
      if (hidden.includes(at)) {
        if (index === 1) this.trail.append(el("span", { class: "gap" }, `\u2026 ${hidden.length} more`));
        return;
      }
      const { name } = this.tree.frame(at);
      const isLast = index === path.length - 1;
      this.trail.append(el("button", {
        type: "button", title: name, "aria-current": isLast && "location", onclick: () => this.flame.zoomTo(at),
      }, name.slice(0, 120) || "(no name)"));
    });
    const share = this.tree.total > 0 ? this.tree.value(node) / this.tree.total : 0;
    const amount = this.metric === "launches" ? `${count(this.tree.value(node))} launches` : duration(this.tree.value(node));
    this.trail.append(el("span", { class: "note trail-value" }, node === 0 ? amount : `${amount}, ${percent(share)}`));
    this.reset.disabled = node === 0 && this.flame.range[0] === 0 && this.flame.range[1] === 1;
  }

  private showOutline(): void {
    replace(this.outlineBody, this.outlineBox.open ? outline(this.tree) : null);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || this.profile.stacks.length === 0) return;
    const typing = event.target === this.search;
    if (event.key === "Escape") {
      this.clearMarks();
      this.flame.zoomTo(0);
      if (typing) this.search.blur();
    } else if (typing) {
      return;
    } else if (event.key === "/") {
      this.search.focus();
      this.search.select();
    } else if (event.key === "v") this.setView(this.view === "launch" ? "capture" : "launch");
    else if (event.key === "i") this.toggleInverted();
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.5);
    else if (event.key === "-") this.zoomBy(1 / 1.5);
    else if (event.key === "0") this.flame.zoomTo(0);
    else return;
    event.preventDefault();
  }

  private zoomBy(factor: number): void {
    this.flame.zoomBy(factor);
    this.showTrail(this.flame.focus);
  }
}

/** Whether `frame` is this kernel; a full name is left out of frames where it equals the name. */
function isKernel(kernel: Kernel, frame: Frame): boolean {
  return frame.layer === "kernel" && frame.name === kernel.name && (frame.full_name || frame.name) === (kernel.full_name || kernel.name);
}

function key(name: string): HTMLElement {
  return el("kbd", {}, name);
}

/** How many hooks there are and whether all went in the best way. */
function hookNote(profile: Profile): string {
  const odd = profile.hooks.filter((hook) => !/^(patched|preloaded)/.test(hook.way)).length;
  return `${count(profile.hooks.length)} driver functions${odd > 0 ? `, ${odd} by another way` : ""}`;
}

const app = document.getElementById("app");
if (app) {
  try {
    new Page(readProfile()).mount(app);
  } catch (error) {
    replace(app, el("p", { class: "failure", role: "alert" }, `This profile cannot be shown: ${error instanceof Error ? error.message : String(error)}`));
    throw error;
  }
}
