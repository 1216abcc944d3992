// What stands around the graph: the run in numbers, the ledger, statuses, hooks.

import { append, el } from "./dom";
import { count, duration, percent } from "./format";
import type { Profile } from "./profile";

function wallTime(ms: number): string {
  return ms > 0 ? `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "start not known";
}

/** The numbers on top. */
export function summary(profile: Profile): HTMLElement {
  const { meta, totals } = profile;
  const losses = profile.ledger.filter((line) => line.is_loss && line.count > 0);
  const list = el("dl", { class: "summary" });
  const tile = (term: string, value: string, note: string, mark = ""): void =>
    append(list, el("div", { class: mark }, el("dt", {}, term), el("dd", {}, value), el("dd", { class: "note" }, note)));
  tile("GPU time, estimated", duration(totals.gpu_time_ns), `${duration(totals.recorded_gpu_time_ns)} recorded`);
  tile("Launches, estimated", count(totals.launches), `${count(totals.recorded_count)} GPU records`);
  tile("Time covered", duration(meta.duration_ns), wallTime(meta.start_wall_ms));
  tile("CUPTI windows", count(meta.window_count), `${duration(meta.window_open_ns)} open, ${percent(meta.window_open_ns / meta.duration_ns)}`);
  tile("Joined", totals.recorded_gpu_time_ns > 0 ? percent(totals.joined_share) : "\u2013", "of recorded time has its launch");
  tile("Losses", losses.length === 0 ? "none" : String(losses.length), losses.length === 0 ? "every record is accounted for" : losses.length === 1 ? "kind of loss, see the ledger" : "kinds of loss, see the ledger", losses.length > 0 ? "marked" : "");
  return list;
}

/** A status that several processes may share. */
interface SharedStatus {
  name: string;
  text: string;
  detail: string;
  holds: boolean;
  needs_attention: boolean;
  processes: number[];
}

/** Statuses with the same words as one, those that hold first. */
function sharedStatuses(profile: Profile): SharedStatus[] {
  const shared = new Map<string, SharedStatus>();
  for (const { process_id, ...status } of profile.statuses) {
    const key = JSON.stringify(status);
    const entry = shared.get(key) ?? { ...status, processes: [] };
    entry.processes.push(process_id);
    shared.set(key, entry);
  }
  return [...shared.values()].sort((a, b) => Number(b.holds) - Number(a.holds));
}

/** A status in words. */
function statusWords(status: SharedStatus): HTMLElement {
  const { processes } = status;
  const where = processes.length > 1 ? ` in ${count(processes.length)} processes (${processes.join(", ")})` : ` in process ${processes[0]}`;
  return el("span", {},
    el("strong", {}, status.name), el("span", { class: "note" }, where), ` \u2014 ${status.text}`,
    status.detail !== "" && el("code", {}, status.detail));
}

/** Statuses in words; null when none is news. */
export function statuses(profile: Profile): HTMLElement | null {
  const shown = sharedStatuses(profile).filter((status) => status.needs_attention);
  if (shown.length === 0) return null;
  return el("ul", { class: "statuses", "aria-label": "Statuses" }, ...shown.map((status) =>
    el("li", { class: status.holds ? "holds" : "past" },
      el("span", { class: "badge" }, status.holds ? "Now" : "Earlier"), statusWords(status))));
}

export function ledger(profile: Profile): HTMLElement {
  const body = el("tbody", {});
  for (const line of profile.ledger) {
    const mark = line.is_loss && line.count > 0;
    body.append(el("tr", { class: mark ? "loss" : line.is_loss ? "no-loss" : "", title: line.key },
      el("td", {}, mark && el("span", { class: "badge" }, "Loss"), line.text),
      el("td", { class: "number" }, count(line.count))));
  }
  return el("table", { class: "ledger", "aria-label": "Ledger" }, body);
}

export function run(profile: Profile): HTMLElement {
  const { meta } = profile;
  const list = el("dl", { class: "pairs" });
  const pair = (term: string, text: string): void => append(list, el("dt", {}, term), el("dd", {}, text));
  pair("command", meta.title);
  const processes = new Set(profile.stacks.map((stack) => stack.process_id));
  if (processes.size > 0) pair("processes", [...processes].join(", "));
  const devices = new Set(profile.stacks.map((stack) => stack.device).filter((device) => device !== null));
  if (devices.size > 0) pair("devices", [...devices].join(", "));
  for (const good of sharedStatuses(profile).filter((status) => status.holds && !status.needs_attention)) pair(good.name, `${good.text} in ${good.processes.length > 1 ? `${count(good.processes.length)} processes` : `process ${good.processes[0]}`}`);
  for (const [key, value] of Object.entries(meta.labels)) pair(key, value);
  pair("launchscope", meta.launchscope_version);
  return list;
}

export function hooks(profile: Profile): HTMLElement {
  const several = new Set(profile.hooks.map((hook) => hook.process_id)).size > 1;
  const body = el("tbody", {});
  for (const hook of profile.hooks) {
    body.append(el("tr", {}, several && el("td", { class: "number" }, String(hook.process_id)), el("td", {}, el("code", {}, hook.name)), el("td", {}, hook.way), el("td", { class: "number" }, count(hook.hits))));
  }
  return el("table", { class: "hooks", "aria-label": "Hooks" }, body);
}

/** Stands in for the graph when there is nothing to draw. */
export function emptiness(profile: Profile, metricTitle: string): HTMLElement {
  if (profile.stacks.length > 0) {
    return el("div", { class: "empty" },
      el("h2", {}, `No stack has a weight in \u201c${metricTitle}\u201d`),
      el("p", {}, "Another metric may have something to show."));
  }
  const all = sharedStatuses(profile);
  const news = all.filter((status) => status.needs_attention);
  const why = news.length > 0 ? news : all;
  return el("div", { class: "empty" },
    el("h2", {}, "Nothing to draw"),
    el("p", {}, why.length > 0
      ? "The run left no stacks. The statuses say why:"
      : "The run left no stacks, and no status says why: no engine process reported to the collector. The ledger shows what was seen."),
    el("ul", {}, ...why.map((status) => el("li", {}, statusWords(status)))));
}
