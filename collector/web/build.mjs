// Builds dist/page.{js,css,html}, which are committed and embedded by the collector. The same sources give the same bytes.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));
mkdirSync("dist", { recursive: true });

const common = { bundle: true, minify: true, write: false, charset: "ascii", legalComments: "none", logLevel: "info" };
const script = await build({ ...common, entryPoints: ["src/main.ts"], format: "iife", target: ["es2022"] });
const style = await build({ ...common, entryPoints: ["src/page.css"], target: ["chrome110", "firefox110", "safari16.4"] });
const js = script.outputFiles[0].text;
const css = style.outputFiles[0].text;

// What is put inline must not end its own element.
if (/<\/script|<!--/i.test(js) || /<\/style|<!--/i.test(css)) throw new Error("the bundle would end its own element");

// The page's content security policy allows these two by hash and nothing else, so a name that broke out would still not run.
const hash = (text) => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;
const html = readFileSync("src/page.html", "utf8")
  .replace("@@SCRIPT_HASH@@", () => hash(js))
  .replace("@@STYLE_HASH@@", () => hash(css));

writeFileSync("dist/page.js", js);
writeFileSync("dist/page.css", css);
writeFileSync("dist/page.html", html);
console.log(`dist: js ${js.length}, css ${css.length}, html ${html.length} bytes`);
