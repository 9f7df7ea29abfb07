// End-to-end tests of the page in Chromium: what is shown is what the command line prints.
//
// node page.mjs TET SOURCES OUTPUT: SOURCES is a folder that `sources.py` wrote, OUTPUT receives screenshots.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [tet, folder, output] = process.argv.slice(2);
mkdirSync(output, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), "tesseral-browser-"));
const ARGUMENTS = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"];

const json = (...words) => JSON.parse(execFileSync(tet, [...words, "--json"], { encoding: "utf8", maxBuffer: 1 << 28 }));

async function serve(...sources) {
  const child = spawn(tet, ["serve", ...sources], { stdio: ["ignore", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const url = await new Promise((resolve, reject) => { lines.once("line", resolve); child.once("exit", (code) => reject(new Error(`tet serve ended with ${code}`))); });
  return { url: new URL(url), child, stop: () => new Promise((resolve) => { child.removeAllListeners("exit"); child.once("exit", resolve); child.kill("SIGTERM"); }) };
}

const browser = await chromium.launchPersistentContext(profile, { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ARGUMENTS, viewport: { width: 1280, height: 1000 } });
let failures = 0;

async function open(url, { hash = "", scheme = "light", width = 1280, height = 1000 } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ colorScheme: scheme });
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") page.problems.push(message.text()); });
  page.on("request", (request) => { if (new URL(request.url()).host !== url.host && !request.url().startsWith("data:")) page.problems.push(`request to ${request.url()}`); });
  page.on("dialog", (dialog) => { page.problems.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(`${url}${hash}`);
  await page.waitForSelector("body[data-ready]");
  await settled(page);
  return page;
}

async function settled(page) { await page.waitForLoadState("networkidle"); await page.waitForTimeout(250); await page.waitForLoadState("networkidle"); }

const shot = (page, name) => page.screenshot({ path: join(output, `${name}.png`), fullPage: true });
const text = (page, id) => page.locator(`#${id}`).innerText();

async function test(name, run) {
  try { await run(); console.log(`ok      ${name}`); } catch (error) { failures += 1; console.error(`FAILED  ${name}\n${error.stack}`); }
}

async function close(page) { assert.deepEqual(page.problems, []); await page.close(); }

// Statistics, the value at a point and its coordinates are those of the command line.
async function compare(page, path, name) {
  const wanted = json("stat", path, name, "time=0");
  for (const key of ["min", "max", "mean", "std", "count", "nulls"]) {
    assert.equal(Number(await text(page, `stat-${key}`)), Number(wanted[key]), `${path} ${key}`);
  }
  await page.evaluate(() => { location.hash = location.hash.replace(/&p=[^&]*/, "") + "&p=0,2,3"; });
  await settled(page);
  const cell = json("cat", path, name, "time=0", "1=2", "2=3");
  const shown = (await text(page, "reading")).split("\n")[0].trim().split(" ")[0];
  const value = cell.data.flat(9)[0];
  if (value === null) assert.equal(shown, "missing", path);
  else assert.equal(typeof value === "number" ? Number(shown) : shown, value, path);
}

for (const file of ["weather.tet", "weather.tgm", "weather.tdb", "weather.nc", "weather.zarr"]) {
  await test(`numbers of ${file} are those of stat and cat`, async () => {
    const path = join(folder, file);
    const server = await serve(path);
    try {
      const page = await open(server.url);
      await page.locator(".tree-item", { hasText: "temperature" }).first().click();
      await settled(page);
      await compare(page, path, "temperature");
      assert.equal(await page.locator("#map-card").isVisible(), true);
      await shot(page, file.replace(".", "-"));
      await close(page);
    } finally { await server.stop(); }
  });
}

await test("map, keyboard, series, zoom, panels, link", async () => {
  const server = await serve(join(folder, "weather.nc"));
  try {
    const page = await open(server.url);
    await page.locator(".tree-item", { hasText: "temperature" }).first().click();
    await settled(page);
    const plot = page.locator("#plot");
    await plot.focus();
    await page.keyboard.press("Enter");
    await page.keyboard.press("ArrowUp");
    await settled(page);
    const before = await text(page, "place");
    await page.keyboard.press("ArrowUp");
    await settled(page);
    const latitude = (line) => Number(line.match(/lat\s+(-?[\d.]+)/)[1]);
    assert.ok(latitude(await text(page, "place")) > latitude(before), "up is north");
    assert.ok(await page.locator("#series svg .data").count() > 0);
    await page.getByRole("button", { name: "Zoom in" }).click();
    await settled(page);
    assert.match(page.url(), /at=0%2C\d+%3A\d+/);
    const linked = await open(server.url, { hash: new URL(page.url()).hash });
    assert.equal(await text(linked, "title"), await text(page, "title"));
    assert.equal(new URL(linked.url()).hash, new URL(page.url()).hash);
    assert.equal(new URL(linked.url()).search, "", "the token leaves the address");
    await close(linked);
    for (const tab of ["Table", "Chunks", "Download", "Copy as", "Attributes"]) {
      await page.getByRole("tab", { name: tab }).click();
      await settled(page);
      assert.equal(await page.locator("#panel .problem").count(), 0, tab);
      assert.ok((await text(page, "panel")).length > 20, tab);
    }
    await page.getByRole("tab", { name: "Copy as" }).click();
    await settled(page);
    const [first] = (await text(page, "code-cli")).split("\n");
    const words = first.split(" ").slice(1).map((word) => word.replace(/^'(.*)'$/, "$1"));
    assert.ok(execFileSync(tet, words, { encoding: "utf8" }).length > 10, first);
    await page.locator("#slider-0").focus();
    await page.keyboard.press("ArrowRight");
    await settled(page);
    assert.match(await text(page, "label-0"), /2 of/);
    const download = page.waitForEvent("download");
    await page.getByRole("tab", { name: "Download" }).click();
    await settled(page);
    await page.getByRole("link", { name: "CSV", exact: true }).click();
    const csv = readFileSync(await (await download).path(), "utf8");
    assert.ok(csv.startsWith("time,lat,lon,temperature\n"));
    const names = await page.evaluate(() => [...document.querySelectorAll("button, input, select, [tabindex='0']")]
      .filter((node) => node.checkVisibility() && !(node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length || node.getAttribute("aria-labelledby") || node.placeholder)).map((node) => node.outerHTML));
    assert.deepEqual(names, [], "every control has a name");
    await close(page);
  } finally { await server.stop(); }
});

await test("the coldest day over a part of the map", async () => {
  const path = join(folder, "weather.nc");
  const server = await serve(path);
  try {
    const page = await open(server.url);
    await page.locator(".tree-item", { hasText: "temperature" }).first().click();
    await settled(page);
    for (const [name, value] of [["lat from", "44"], ["lat to", "60"], ["lon from", "5"], ["lon to", "40"]]) await page.getByRole("textbox", { name }).fill(value);
    await page.getByRole("button", { name: "Show this part" }).click();
    await settled(page);
    await page.locator("#of").selectOption("mean");
    await settled(page);
    await page.locator("#by").selectOption("date");
    await settled(page);
    const [row] = json("stat", path, "temperature", "lat=44..60", "lon=5..40", "--mean", "--by", "time.date", "--sort", "mean", "-n", "1").rows;
    assert.match(await text(page, "ends"), new RegExp(`^lowest ${row.mean} degC at ${row.coordinates[0]} `));
    await shot(page, "coldest");
    await page.getByRole("button", { name: `Show time ${row.coordinates[0]}` }).click();
    await settled(page);
    assert.match(await text(page, "label-0"), new RegExp(`^${row.coordinates[0]}`));
    await page.getByRole("tab", { name: "Copy as" }).click();
    await settled(page);
    assert.match(await text(page, "code-cli"), /--mean --by time\.date --sort mean/);
    assert.match(await text(page, "code-python"), /groupby\("time\.date"\)\nmeans = groups\.mean\(\.\.\.\)/);
    await page.getByRole("textbox", { name: "lat from" }).fill("north");
    await page.getByRole("button", { name: "Show this part" }).click();
    await settled(page);
    assert.equal(await page.locator("#problem").isVisible(), true);
    page.problems = page.problems.filter((problem) => !problem.includes("400"));
    await close(page);
  } finally { await server.stop(); }
});

await test("a part across the end of the axis", async () => {
  const path = join(folder, "weather.nc");
  const server = await serve(path);
  try {
    const page = await open(server.url);
    await page.locator(".tree-item", { hasText: "temperature" }).first().click();
    await settled(page);
    for (const [name, value] of [["lon from", "-20"], ["lon to", "20"]]) await page.getByRole("textbox", { name }).fill(value);
    await page.getByRole("button", { name: "Show this part" }).click();
    await settled(page);
    const wanted = json("stat", path, "temperature", "time=0", "lon=-20..20");
    for (const key of ["min", "max", "mean", "count"]) assert.equal(Number(await text(page, `stat-${key}`)), Number(wanted[key]), key);
    await page.locator("#plot").click({ position: { x: 20, y: 200 } });
    await settled(page);
    assert.match(await text(page, "place"), /lon\s+340/, "coordinates are the stored ones");
    assert.equal(await page.locator("#cross").isVisible(), true);
    await page.locator("#plot").focus();
    for (let i = 0; i < 5; i += 1) await page.keyboard.press("ArrowRight");
    await settled(page);
    assert.match(await text(page, "place"), /lon\s+5\b/, "the cursor crosses the end");
    await page.getByRole("tab", { name: "Copy as" }).click();
    await settled(page);
    const second = (await text(page, "code-cli")).split("\n")[1];
    const words = second.split(" ").slice(1).map((word) => word.replace(/^'(.*)'$/, "$1"));
    assert.equal(json(...words).mean, wanted.mean, second);
    await shot(page, "across");
    await close(page);
  } finally { await server.stop(); }
});

await test("a map without values offers a stored part", async () => {
  const server = await serve(join(folder, "late.zarr"), join(folder, "weather.nc"), join(folder, "odd.nc"));
  try {
    const page = await open(server.url);
    await page.getByRole("button", { name: "Show the first stored part" }).click();
    await settled(page);
    assert.match(await text(page, "label-0"), /3 of/);
    assert.equal(await page.locator("#empty").isVisible(), false);
    assert.equal(await page.locator("details.source[open]").count(), 1, "only the shown source is open");
    await shot(page, "late");
    await close(page);
  } finally { await server.stop(); }
});

await test("dark mode and phone width", async () => {
  const server = await serve(join(folder, "weather.nc"), join(folder, "cells.tdb"));
  try {
    const dark = await open(server.url, { scheme: "dark" });
    await shot(dark, "dark");
    assert.notEqual(await dark.evaluate(() => getComputedStyle(document.body).backgroundColor), "rgb(246, 247, 249)");
    await close(dark);
    const phone = await open(server.url, { width: 390, height: 844 });
    assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= 390), "no horizontal scrolling");
    await shot(phone, "phone");
    await close(phone);
  } finally { await server.stop(); }
});

await test("sparse cells as points and rows, at earlier times", async () => {
  const server = await serve(join(folder, "cells.tdb"));
  try {
    const page = await open(server.url);
    const cells = await page.locator("#plot svg circle").count();
    assert.equal(cells, json("stat", join(folder, "cells.tdb"), "value").count);
    await page.getByRole("tab", { name: "Table" }).click();
    await settled(page);
    const rows = await page.locator("#panel tbody tr").count();
    assert.ok(rows > 0);
    await shot(page, "sparse");
    await page.getByRole("tab", { name: "Versions" }).click();
    await settled(page);
    await page.getByRole("button", { name: "Show" }).last().click();
    await settled(page);
    assert.ok(await page.locator("#plot svg circle").count() < cells, "fewer cells at the first version");
    await shot(page, "earlier");
    await close(page);
  } finally { await server.stop(); }
});

await test("markup in names and attributes does not run", async () => {
  const server = await serve(join(folder, "hostile.nc"));
  try {
    const page = await open(server.url);
    for (const tab of ["Attributes", "Table", "Chunks", "Download", "Copy as"]) { await page.getByRole("tab", { name: tab }).click(); await settled(page); }
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("#content img, #content script, nav img").count(), 0);
    assert.ok((await page.locator("body").innerText()).includes("<img"), "it is shown as text");
    await shot(page, "hostile");
    await close(page);
  } finally { await server.stop(); }
});

await test("missing cells, scalars and text have a state of their own", async () => {
  const server = await serve(join(folder, "odd.nc"));
  try {
    const page = await open(server.url);
    for (const name of ["gaps", "scalar", "words", "line"]) {
      await page.locator(".tree-item", { hasText: name }).first().click();
      await settled(page);
      assert.equal(await page.locator("#problem").isVisible(), false, `${name}: ${await page.locator("#problem").textContent()}`);
      await shot(page, `odd-${name}`);
    }
    await close(page);
  } finally { await server.stop(); }
});

await test("errors are shown and the page goes on", async () => {
  const server = await serve(join(folder, "damaged.tet"));
  try {
    const page = await open(server.url);
    await settled(page);
    assert.equal(await page.locator("#problem").isVisible(), true);
    assert.match(await text(page, "problem"), /damaged|checksum|mismatch/);
    await shot(page, "damaged");
    await page.close();
  } finally { await server.stop(); }
});

await test("1,000 tile requests at once do not make the server grow", async () => {
  const server = await serve(join(folder, "weather.nc"));
  try {
    const token = server.url.searchParams.get("token");
    const resident = () => Number(readFileSync(`/proc/${server.child.pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);
    const index = json("info", join(folder, "weather.nc")).arrays.findIndex((array) => array.name === "temperature");
    const round = (n) => Promise.all(Array.from({ length: n }, async (_, i) => {
      const response = await fetch(`${server.url.origin}/api/plane?array=${index}&at=${i % 24},0:${10 + (i % 35)},0:72&x=2&width=512&height=256`, { headers: { Authorization: `Bearer ${token}` } });
      assert.equal(response.status, 200);
      return (await response.arrayBuffer()).byteLength;
    }));
    await round(1000);
    const before = resident();
    for (let i = 0; i < 3; i += 1) await round(1000);
    const grown = resident() - before;
    console.log(`        ${before} KiB after 1,000 requests, ${grown} KiB more after 3,000 others`);
    assert.ok(grown < 32 * 1024, `${grown} KiB more`);
  } finally { await server.stop(); }
});

await browser.close();
rmSync(profile, { recursive: true, force: true });
console.log(failures ? `${failures} failed` : `all passed; screenshots in ${output}`);
process.exit(failures ? 1 : 0);
