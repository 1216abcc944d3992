// Numbers in words for people.

/** A duration with three significant digits and its unit. */
export function duration(ns: number): string {
  if (!(ns > 0)) return "0";
  const units: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];
  for (const [size, unit] of units) {
    if (ns >= size) {
      const value = ns / size;
      if (unit === "s" && value >= 600) return `${count(Math.round(value / 60))} min`;
      return `${value >= 999.5 ? count(Math.round(value)) : size === 1 && Number.isInteger(value) ? value : value.toPrecision(3)} ${unit}`;
    }
  }
  return `${Number(ns.toPrecision(2))} ns`;
}

/** A count with digits grouped. */
export function count(value: number): string {
  const rounded = value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value) ? Number(value.toPrecision(2)) : Math.round(value);
  return rounded.toLocaleString("en-US");
}

/** A share as a percentage. */
export function percent(share: number): string {
  if (!Number.isFinite(share) || share <= 0) return "0 %";
  const value = share * 100;
  if (value < 0.01) return "< 0.01 %";
  if (value >= 99.95) return value > 99.9999 ? "100 %" : "> 99.9 %";
  return `${value.toFixed(value >= 1 ? 1 : 2)} %`;
}

/** Only the end of a path: the file and the directory it is in. */
export function shortPath(path: string): string {
  const parts = path.split("/");
  return parts.length > 3 ? `\u2026/${parts.slice(-2).join("/")}` : path;
}
