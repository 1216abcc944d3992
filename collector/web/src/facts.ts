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
  tile("Launches, estimated", count(totals.launches), `${count(totals.recorded_count)} kernels and copies recorded`);
  tile("Time covered", duration(meta.duration_ns), wallTime(meta.start_wall_ms));
  tile("CUPTI windows", count(meta.window_count), `${duration(meta.window_open_ns)} open, ${percent(meta.window_open_ns / meta.duration_ns)} of the time`);
  tile("Joined", totals.recorded_gpu_time_ns > 0 ? percent(totals.joined_share) : "\u2013", "of recorded GPU time has a launch stack");
  tile("Losses", losses.length === 0 ? "none" : String(losses.length), losses.length === 0 ? "every record is accounted for" : "kinds of loss, see the ledger", losses.length > 0 ? "marked" : "");
  return list;
}

/** Statuses in words; null when none ever held. */
export function statuses(profile: Profile): HTMLElement | null {
  if (profile.statuses.length === 0) return null;
  const several = new Set(profile.statuses.map((status) => status.process_id)).size > 1;
  const list = el("ul", { class: "statuses", "aria-label": "Statuses" });
  for (const status of [...profile.statuses].sort((a, b) => Number(b.holds) - Number(a.holds))) {
    list.append(el("li", { class: status.holds ? "holds" : "past" },
      el("span", { class: "badge" }, status.holds ? "Now" : "Earlier"),
      el("span", {},
        el("strong", {}, status.name.replaceAll("_", " ")),
        several && ` in process ${status.process_id}`,
        ` \u2014 ${status.text}`,
        status.detail !== "" && el("code", {}, status.detail))));
  }
  return list;
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
  for (const [key, value] of Object.entries(meta.labels)) pair(key, value);
  pair("launchscope", meta.launchscope_version);
  return list;
}

export function hooks(profile: Profile): HTMLElement {
  const several = new Set(profile.hooks.map((hook) => hook.process_id)).size > 1;
  const body = el("tbody", {});
  for (const hook of profile.hooks) {
    body.append(el("tr", {}, several && el("td", { class: "number" }, String(hook.process_id)), el("td", {}, el("code", {}, hook.name)), el("td", {}, hook.way)));
  }
  return el("table", { class: "hooks", "aria-label": "Hooks" }, body);
}

/** Stands in for the graph when there is nothing to draw. */
export function emptiness(profile: Profile, metricTitle: string): HTMLElement {
  const nothing = profile.stacks.length === 0;
  const held = profile.statuses.filter((status) => status.holds);
  const why = held.length > 0 ? held : profile.statuses;
  const box = el("div", { class: "empty" },
    el("h2", {}, nothing ? "Nothing to draw" : `No stack has a weight in \u201c${metricTitle}\u201d`));
  if (!nothing) append(box, el("p", {}, "Another metric may have something to show."));
  else append(box, el("p", {}, why.length > 0 ? "The run left no stacks. The statuses say why:" : "The run left no stacks, and no status says why. The ledger shows what was seen."));
  if (nothing && why.length > 0) {
    append(box, el("ul", {}, ...why.map((status) => el("li", {}, el("strong", {}, status.name.replaceAll("_", " ")), ` \u2014 ${status.text}`, status.detail !== "" && el("code", {}, status.detail)))));
  }
  return box;
}
