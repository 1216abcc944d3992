// The page in a real browser, opened from disk. Run by scripts/test-page.sh, which sets PROFILES and CHROMIUM.
//
// The graph itself is pixels, so its frames are read from the outline, which is built from the same tree.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const { PROFILES, CHROMIUM, SCREENSHOTS } = process.env;
// playwright-core starts Chromium with a new empty --user-data-dir for each launch.
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const ROW = 20;
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
});
after(() => browser?.close());

/** Opens a scenario; when `use` is done, asserts that the page asked for nothing and complained of nothing. */
async function open(scenario, use, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 1000 }, reducedMotion: "reduce", ...options });
  const requests = [];
  const complaints = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("console", (message) => complaints.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  const url = pathToFileURL(path.join(PROFILES, scenario, "profile.html")).href;
  await page.goto(url);
  await use(page, complaints);
  assert.deepEqual(requests.filter((request) => request !== url && !request.startsWith("data:")), []);
  assert.deepEqual(complaints, []);
  await page.close();
}

const text = (page, selector) => page.locator(selector).first().innerText();

/** The names in the outline, with everything opened. */
async function outlineNames(page) {
  await page.evaluate(async () => {
    document.querySelector(".outline").open = true;
    for (let closed = [null]; closed.length > 0; ) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      closed = [...document.querySelectorAll(".outline details:not([open])")];
      for (const details of closed) details.open = true;
    }
  });
  return page.locator(".outline-name").allInnerTexts();
}

/** Points at the middle of a depth of the graph, `part` of the way from left to right. */
async function point(page, depth, part = 0.2) {
  const box = await page.locator("canvas").boundingBox();
  return [box.x + box.width * part, box.y + depth * ROW + ROW / 2];
}

test("opens from disk with facts, ledger, statuses and hooks, and asks for nothing", () =>
  open("decode", async (page) => {
    assert.match(await page.title(), /^vllm serve .* launchscope$/);
    assert.match(await text(page, ".summary"), /GPU time, estimated\s+50\.1 s\s+356 ms recorded/);
    assert.match(await text(page, ".summary"), /CUPTI windows\s+22\s+439 ms open, 0\.71 %/);
    assert.match(await text(page, ".statuses"), /Earlier\s+cupti-taken.* another tool holds CUPTI[\s\S]*3 tries/);
    const losses = await page.locator(".ledger .loss").allInnerTexts();
    assert.equal(losses.length, 2);
    assert.match(losses[0], /Loss\s*kernel records dropped by CUPTI for lack of buffers\s+12/);
    assert.equal(await page.locator(".hooks").isVisible(), false);
    await page.locator(".plain > summary").click();
    assert.match(await text(page, ".hooks"), /cuMemcpyDtoHAsync_v2\s+callback: the entry has a jump/);
  }));

test("the view switch changes the frames and keeps the total", () =>
  open("decode", async (page) => {
    const total = await text(page, ".trail-value");
    const launch = await outlineNames(page);
    assert.ok(launch.includes("cuGraphLaunch") && launch.includes("graph of 541 nodes, batch 64"));
    assert.ok(!launch.includes("GPUModelRunner.capture_model"));
    await page.keyboard.press("v");
    assert.equal(await page.locator('[data-id="capture"]').getAttribute("aria-pressed"), "true");
    assert.match(await text(page, ".explanation"), /^Capture view\. Which code captured each kernel/);
    const capture = await outlineNames(page);
    assert.ok(capture.includes("GPUModelRunner.capture_model") && capture.includes("Qwen3DecoderLayer.forward"));
    assert.ok(!capture.includes("graph of 541 nodes, batch 64"));
    assert.equal(await text(page, ".trail-value"), total);
  }));

test("the metric switch changes the totals, and counted stacks end at the API", () =>
  open("decode", async (page) => {
    await page.click('[data-id="recorded_gpu_time_ns"]');
    assert.equal(await text(page, ".trail-value"), "356 ms");
    await page.click('[data-id="launches"]');
    assert.equal(await text(page, ".trail-value"), "199,430 launches");
    const names = await outlineNames(page);
    assert.ok(names.includes("cuGraphLaunch"));
    assert.ok(!names.some((name) => name.startsWith("nvjet")));
  }));

test("inverted, kernels are on top", () =>
  open("decode", async (page) => {
    await page.click("text=Invert");
    const [first, second] = await outlineNames(page);
    assert.equal(first, "nvjet_tst_128x64_64x8_2x1_v_bz_TNT");
    assert.match(second, /^graph of 541 nodes|^cuLaunchKernelEx/);
  }));

test("search says the matched share, takes regular expressions, and Esc clears it", () =>
  open("decode", async (page) => {
    await page.keyboard.press("/");
    await page.keyboard.type("FLASHATTNFWDSM90<");
    assert.match(await text(page, ".found"), /^17\.4 % 8\.73 s in 4 frames$/);
    await page.fill("input[type=search]", "silu|rotary_embedding_kernel");
    assert.match(await text(page, ".found"), /^3\.\d % .* frames$/);
    await page.fill("input[type=search]", "nvjet(");
    assert.match(await text(page, ".found"), /not a regular expression, taken as text/);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator(".found").isVisible(), false);
    assert.equal(await page.inputValue("input[type=search]"), "");
  }));

test("clicks zoom, the trail and Esc lead back, Ctrl+wheel and drag move", () =>
  open("decode", async (page) => {
    const trail = () => page.locator(".trail button").allInnerTexts();
    assert.deepEqual(await trail(), ["all"]);
    await page.mouse.click(...(await point(page, 14)));
    assert.equal((await trail()).at(-1), "graph of 541 nodes, batch 64");
    await page.mouse.click(...(await point(page, 3, 0.5)));
    assert.equal((await trail()).at(-1), "EngineCoreProc.run_busy_loop");
    await page.keyboard.press("Escape");
    assert.deepEqual(await trail(), ["all"]);
    assert.equal(await page.locator("text=Reset zoom").isDisabled(), true);
    await page.mouse.move(...(await point(page, 10)));
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -300);
    await page.keyboard.up("Control");
    const [x, y] = await point(page, 10);
    await page.mouse.down();
    await page.mouse.move(x - 300, y, { steps: 4 });
    await page.mouse.up();
    assert.deepEqual(await trail(), ["all"], "a drag is not a click");
  }));

test("the keyboard walks the graph and says where it is", () =>
  open("decode", async (page) => {
    await page.focus("canvas");
    for (let step = 0; step < 3; step++) await page.keyboard.press("ArrowDown");
    assert.match(await text(page, "[role=status]"), /^EngineCoreProc\.run_busy_loop, Python, depth 3, 100 %, 50\.1 s$/);
    await page.keyboard.press("Enter");
    assert.equal(await text(page, ".trail button[aria-current]"), "EngineCoreProc.run_busy_loop");
  }));

test("the tooltip has the place, both shares, times and counts", () =>
  open("decode", async (page) => {
    await page.mouse.move(...(await point(page, 14, 0.1)));
    await page.mouse.move(...(await point(page, 8, 0.1)));
    const tooltip = await text(page, ".tooltip");
    assert.match(tooltip, /^GPUModelRunner\._model_forward\n.*gpu_model_runner\.py:2581/);
    assert.match(tooltip, /Share of total\s+90\.\d %\s+Share of parent\s+90\.\d %\s+GPU time, estimated\s+[\d.]+ s\s+GPU time, recorded/);
    assert.match(tooltip, /Recorded runs\s+[\d,]+\s+Mean run\s+[\d.]+ \u00b5s\s+Launches, estimated/);
  }));

test("a kernel of the table is marked in the graph and shows its full name", () =>
  open("decode", async (page) => {
    await page.click(".kernel-name >> text=FlashAttnFwdSm90");
    assert.match(await text(page, "tr.full"), /^void cutlass::device_kernel<flash::enable_sm90/);
    assert.match(await text(page, ".found"), /^17\.4 %/);
    await page.click(".clear");
    assert.equal(await page.locator("tr.full").count(), 0);
    await page.click("th >> text=Mean");
    assert.equal(await page.locator('th[aria-sort="descending"]').innerText(), "Mean");
  }));

test("an empty profile says why by its statuses", () =>
  open("empty", async (page) => {
    assert.match(await text(page, ".empty"), /Nothing to draw[\s\S]*no-gpu-work in process 4242 \u2014 the process has launched nothing/);
    assert.equal(await page.locator("canvas").count(), 0);
  }));

test("hostile names are text and nothing else", () =>
  open("hostile", async (page, complaints) => {
    assert.equal(await text(page, "h1"), "</script><script>window.pwned=1;alert(1)</script>");
    for (const key of ["v", "i"]) await page.keyboard.press(key);
    for (const part of [0.02, 0.25, 0.4, 0.6, 0.99]) await page.mouse.move(...(await point(page, 2, part)));
    for (const name of await page.locator(".kernel-name").all()) await name.click();
    const names = await outlineNames(page);
    assert.ok(names.includes("<img src=x onerror=window.pwned=1>") && names.includes("__proto__"));
    assert.ok(names.some((name) => name.startsWith("two\\nlines; a semicolon \\ and\\ttab \\u2028")));
    assert.equal(await page.evaluate(() => [typeof window.pwned, document.images.length, document.scripts.length].join()), "undefined,0,2");
    // Even a script that got in would not run: the policy allows ours alone, by hash.
    await page.evaluate(() => {
      const script = document.createElement("script");
      script.textContent = "window.pwned = 1";
      document.body.append(script);
    });
    assert.equal(await page.evaluate(() => typeof window.pwned), "undefined");
    assert.match(complaints.splice(0).join(), /Content Security Policy/);
  }));

test("a big profile says what was folded and stays quick", (context) =>
  open("big", async (page) => {
    assert.match(await text(page, ".folded"), /^[\d,]+ frames under 0\.01 % of the total are folded/);
    const times = await page.evaluate(async () => {
      const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const time = async (act, times) => {
        const begin = performance.now();
        for (let step = 0; step < times; step++) {
          act(step);
          await frame();
        }
        return (performance.now() - begin) / times;
      };
      const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      return { view: await time(() => press("v"), 4), zoom: await time((step) => press(step < 10 ? "+" : "-"), 20) };
    });
    context.diagnostic(`view switch ${times.view.toFixed(0)} ms, zoom step ${times.zoom.toFixed(1)} ms`);
    assert.ok(times.view < 1500 && times.zoom < 120, JSON.stringify(times));
  }));

for (const colorScheme of ["light", "dark"]) {
  test(`fits a phone, in ${colorScheme}`, () =>
    open("decode", async (page) => {
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
      await page.locator("canvas").tap({ position: { x: 100, y: 14 * ROW + 10 } });
      assert.match(await text(page, ".trail button[aria-current]"), /^graph of 541 nodes/);
    }, { viewport: { width: 390, height: 844 }, colorScheme, hasTouch: true, deviceScaleFactor: 3 }));
}

if (SCREENSHOTS) {
  test("screenshots", async () => {
    mkdirSync(SCREENSHOTS, { recursive: true });
    for (const colorScheme of ["light", "dark"]) {
      await open("decode", async (page) => {
        for (const view of ["launch", "capture"]) {
          await page.click(`[data-id="${view}"]`);
          await page.mouse.move(0, 0);
          await page.screenshot({ path: path.join(SCREENSHOTS, `${view}-${colorScheme}.png`) });
        }
      }, { colorScheme, deviceScaleFactor: 2, viewport: { width: 1440, height: 1080 } });
    }
  });
}
