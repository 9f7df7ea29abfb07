// The page: loads sources, draws the view, and answers the pointer and the keyboard.
import { ask, ignored, plane } from "./api.js";
import { columns, line, rounds, scatter } from "./chart.js";
import { NAMES, table } from "./colors.js";
import { $, count, el, fill, number, option, say, size } from "./dom.js";
import { Field } from "./map.js";
import * as panels from "./panels.js";
import { at, load, save, state, subject } from "./state.js";
import * as tree from "./tree.js";

let sources = [];
let context = null;
let field = null;
let tile = null;
let cursor = null;
const timers = new Map();

function later(key, milliseconds, run) { clearTimeout(timers.get(key)); timers.set(key, setTimeout(run, milliseconds)); }

function fail(error) {
  if (ignored(error)) return;
  $("problem").textContent = [error.message, error.hint].filter(Boolean).join(". ");
  $("problem").hidden = false;
}

const extent = (d) => context.array.dimensions[d]?.extent ?? 0;
const range = (item) => { const [a, b] = item.split(":").map(Number); return b === undefined ? [a, a + 1] : [a, b]; };
const whole = (d) => `0:${extent(d)}`;

// Positions that fit the array: those of the address as far as they are valid.
function settle() {
  const dims = context.array.dimensions, long = dims.map((_, d) => d).filter((d) => extent(d) > 1);
  const valid = (d) => d !== null && d < dims.length && extent(d) > 1;
  if (!valid(state.x)) state.x = long.at(-1) ?? null;
  if (!valid(state.y) || state.y === state.x) state.y = long.filter((d) => d !== state.x).at(-1) ?? null;
  const fits = (item, d) => { if (!item) return false; const [a, b] = range(item); return a < b && a < extent(d) && (b <= extent(d) || b - a <= extent(d)); };
  if (state.at.length !== dims.length) state.at = dims.map(() => "");
  state.at = state.at.map((item, d) => {
    if (context.array.sparse) return fits(item, d) ? item : whole(d);
    if (d === state.x || d === state.y) return fits(item, d) && item.includes(":") ? item : whole(d);
    return fits(item, d) && !item.includes(":") ? item : "0";
  });
  if (state.p && (state.p.length !== dims.length || state.p.some((p, d) => p >= extent(d)))) state.p = null;
}

async function show() {
  save();
  $("problem").hidden = true;
  if (state.a === null) { $("title").textContent = sources.length ? "This source has no arrays" : "No source"; return; }
  $("title").textContent = "Loading…";
  try {
    const array = await ask("array", subject(), "array");
    const own = array.fields[state.f] ?? array.fields[0];
    const packed = array.packings[own.name];
    context = { source: sources[state.s], array, field: own, packed, numeric: /^(u?int|float|bfloat|bool)/.test(own.dtype) && !own.dtype.includes("["), travel };
    context.countable = array.dimensions.every((dim) => dim.extent !== null);
    if (!context.countable) state.at = [];
    else settle();
    heading();
    await refresh();
  } catch (error) { if (!ignored(error)) $("title").textContent = "This array cannot be shown"; fail(error); }
}

function heading() {
  const { array, field: own, packed } = context;
  const name = array.fields.length > 1 ? `${array.variable}/${own.name}` : array.variable || own.name || "(unnamed)";
  $("title").textContent = name;
  document.title = `${name} – Tesseral`;
  $("subtitle").textContent = [own.long_name, own.units && `[${own.units}]`].filter(Boolean).join(" ");
  const dims = array.dimensions.map((dim) => `${dim.name}${dim.extent === null ? "" : ` ${count(dim.extent)}`}`).join(" × ");
  const facts = [own.dtype, dims || "scalar", array.sparse ? "sparse" : null, own.codecs.length ? own.codecs.join(" + ") : "uncompressed", packed && `physical values: ${packed}`, ...(array.warnings ?? [])];
  fill($("facts"), ...facts.filter(Boolean).map((text) => el("li", { text })));
}

async function refresh() {
  save();
  const { array, numeric, countable } = context;
  const mapped = numeric && countable && (array.sparse ? array.dimensions.length > 0 : state.x !== null && state.y !== null);
  const listed = numeric && !countable && array.sparse && array.dimensions.length > 0;
  $("map-card").hidden = !mapped && !listed;
  $("value-card").hidden = array.sparse;
  tools();
  sliders();
  const jobs = [statistics(), panels.draw(context)];
  if (mapped || listed) jobs.push(array.sparse ? points() : map());
  if (!array.sparse) jobs.push(pointed());
  await Promise.all(jobs.map((job) => job.catch(fail)));
}

function tools() {
  const { array } = context;
  const dims = array.dimensions.map((dim, d) => [d, dim]).filter(([d]) => array.sparse || extent(d) > 1);
  const pick = (key) => el("select", { id: key, onchange: (event) => {
    const chosen = Number(event.target.value), other = key === "x" ? "y" : "x";
    if (state[other] === chosen) state[other] = state[key];
    state[key] = chosen; if (!array.sparse) state.at = []; settle(); refresh();
  } }, ...dims.map(([d, dim]) => option(d, dim.name)));
  const axes = dims.length > 1 ? [el("label", { class: "field" }, "Horizontal ", pick("x")), el("label", { class: "field" }, "Vertical ", pick("y"))] : [];
  const limit = (key, label) => el("label", { class: "field" }, `${label} `, el("input", { type: "text", inputMode: "decimal", id: key, value: state[key] ?? "", placeholder: "auto", onchange: (event) => {
    const v = event.target.value.trim(); state[key] = v === "" || !Number.isFinite(Number(v)) ? null : Number(v); save(); paint(); } }));
  const colors = el("select", { id: "colors", onchange: (event) => { state.c = event.target.value; save(); paint(); } }, ...NAMES.map((name) => option(name, name)));
  const button = (text, label, run) => el("button", { type: "button", text, "aria-label": label, onclick: run });
  const packed = context.packed || state.raw ? el("label", { class: "field" }, el("input", { type: "checkbox", id: "raw", checked: state.raw, onchange: (event) => { state.raw = event.target.checked; show(); } }), " Stored numbers") : null;
  const zooms = array.sparse ? [] : [button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("Reset", "Show everything", reset)];
  fill($("tools"), ...axes, el("label", { class: "field" }, "Colors ", colors), limit("lo", "From"), limit("hi", "to"),
    button("Robust", "Color range without the outer two percent", () => { if (!tile?.header) return; [state.lo, state.hi] = tile.header.robust; save(); tools(); paint(); }),
    button("Auto", "Color range from minimum to maximum", () => { state.lo = state.hi = null; save(); tools(); paint(); }), ...zooms, packed);
  if (axes.length) { $("x").value = String(state.x); $("y").value = String(state.y); }
  colors.value = NAMES.includes(state.c) ? state.c : "viridis";
}

function sliders() {
  const made = [];
  if (!context.array.sparse) for (const [d, dim] of context.array.dimensions.entries()) {
    if (d === state.x || d === state.y || extent(d) < 2) continue;
    const output = el("output", { id: `label-${d}`, text: state.at[d] });
    const input = el("input", { type: "range", id: `slider-${d}`, min: "0", max: String(extent(d) - 1), step: "1" });
    input.value = state.at[d];
    const label = async () => { try { const { texts } = await ask("coordinates", { source: state.s, array: state.a, as_of: state.t, dim: d, from: state.at[d], count: 1 }, `label ${d}`); output.textContent = `${texts[0]}${dim.units ? ` ${dim.units}` : ""} (${Number(state.at[d]) + 1} of ${count(extent(d))})`; input.setAttribute("aria-valuetext", texts[0]); } catch (error) { fail(error); } };
    const set = (value) => { state.at[d] = String(Math.min(extent(d) - 1, Math.max(0, value))); input.value = state.at[d]; if (state.p) state.p[d] = Number(state.at[d]); label(); later("slide", 90, moved); };
    input.addEventListener("input", () => set(Number(input.value)));
    const step = (change, text, kind) => el("button", { type: "button", class: kind, text, "aria-label": `${change < 0 ? "Previous" : "Next"} ${dim.name}`, onclick: () => set(Number(state.at[d]) + change) });
    made.push(el("div", { class: "slider" }, el("label", { htmlFor: `slider-${d}`, text: dim.name }), step(-1, "‹", "before"), input, step(1, "›", "after"), output));
    label();
  }
  fill($("sliders"), ...made);
}

async function moved() { save(); $("problem").hidden = true; const jobs = [statistics(), map(), pointed()]; if (state.tab !== "attributes") jobs.push(panels.draw(context)); await Promise.all(jobs.map((job) => job.catch(fail))); }

async function map() {
  if (state.x === null || state.y === null || !context.numeric) return;
  const plot = $("plot"), width = Math.max(160, plot.clientWidth || 600);
  const [x0, x1] = range(state.at[state.x]), [y0, y1] = range(state.at[state.y]);
  const ratio = Math.min(0.85, Math.max(0.4, (y1 - y0) / (x1 - x0)));
  plot.style.height = `${Math.round(width * ratio)}px`;
  later("busy", 150, () => { $("busy").hidden = false; });
  try {
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    tile = await plane({ ...subject(), at: at(), x: state.x, width: Math.min(1024, Math.round(width * scale)), height: Math.min(1024, Math.round(width * ratio * scale)) });
  } finally { clearTimeout(timers.get("busy")); $("busy").hidden = true; }
  $("field").hidden = false;
  for (const old of plot.querySelectorAll("svg")) old.remove();
  field ??= new Field($("field"));
  axes(tile.header);
  region(tile.header);
  context.ends = Object.fromEntries([tile.header.x, tile.header.y].filter(Boolean).map((axis) => [axis.dim, [axis.first, axis.last]]));
  await paint();
  const { header } = tile;
  const notes = [];
  if (header.sampled) notes.push(`A sample: ${count(header.cells)} of ${count(header.selected)} cells were read. Zoom in to read all.`);
  else if (header.selected > header.width * header.height) notes.push("Each point is the mean of its cells.");
  if (header.nulls) notes.push(`${count(header.nulls)} missing cells are hatched.`);
  if (header.not_finite) notes.push(`${count(header.not_finite)} cells are NaN or infinite (gray).`);
  $("note").textContent = notes.join(" ");
  $("empty").hidden = !header.empty;
  $("empty").textContent = header.not_finite ? "No cell is a finite number" : "Every cell is missing";
  if (header.empty) stored().catch(fail);
  const title = (axis) => axis?.title ?? "";
  plot.setAttribute("aria-label", `Map of ${$("title").textContent}: ${title(header.y)} from ${header.y?.first} to ${header.y?.last}, ${title(header.x)} from ${header.x?.first} to ${header.x?.last}; values from ${number(header.low)} to ${number(header.high)}`);
  mark();
}

// Offers the first stored chunk, if it is at other positions than a map without values.
async function stored() {
  const shape = context.array.chunk_shape, { chunks } = await ask("chunks", { ...subject(), from: 0 }, "stored");
  // Some formats list chunks of fill values, which take no bytes.
  const chunk = chunks.find((own) => own.stored_bytes > 0);
  if (!chunk || !shape || $("empty").hidden) return;
  const first = chunk.coords.map((n, d) => n * shape[d]);
  const others = first.map((_, d) => d).filter((d) => d !== state.x && d !== state.y && extent(d) > 1);
  if (!others.some((d) => String(first[d]) !== state.at[d])) return;
  $("empty").append(el("button", { type: "button", text: "Show the first stored part", onclick: () => {
    for (const d of others) { state.at[d] = String(first[d]); if (state.p) state.p[d] = first[d]; }
    sliders(); moved();
  } }));
}

function axes(header) {
  const ticks = (axis, side) => { let last = -1; const gap = side === "left" ? Math.max(40, 11 * Math.max(0, ...(axis?.ticks ?? []).map(([, text]) => text.length))) / Math.max(1, $("plot").clientWidth) : 0.03;
    return (axis?.ticks ?? []).filter(([place]) => { if (place - last < gap) return false; last = place; return true; }).map(([place, text]) => { const span = el("span", { text }); span.style[side] = `${100 * place}%`; return span; }); };
  fill($("x-ticks"), ...ticks(header.x, "left"));
  fill($("y-ticks"), ...ticks(header.y, "top"));
  $("x-title").textContent = header.x?.title ?? "";
  $("y-title").textContent = header.y?.title ?? "";
}

// Coordinates of the ends of the map, to read and to change.
function region(header) {
  const shown = [header.y, header.x].filter(Boolean);
  const key = shown.map((axis) => axis.name).join(" ");
  if ($("region").dataset.axes !== key) {
    $("region").dataset.axes = key;
    const input = (axis, end) => { const node = el("input", { type: "text", id: `${end}-${axis.dim}`, "aria-label": `${axis.name} ${end}`, autocomplete: "off" });
      node.addEventListener("keydown", (event) => { if (event.key === "Enter") apply(shown.map((own) => own.dim)); }); return node; };
    fill($("region"), ...shown.map((axis) => el("span", { class: "field" }, axis.name, input(axis, "from"), "to", input(axis, "to"))),
      el("button", { type: "button", text: "Show this part", onclick: () => apply(shown.map((own) => own.dim)) }));
  }
  for (const axis of shown) for (const [end, text] of [["from", axis.reversed ? axis.last : axis.first], ["to", axis.reversed ? axis.first : axis.last]]) {
    const node = $(`${end}-${axis.dim}`);
    node.value = text; node.dataset.shown = text;
  }
}

// Shows the positions between the coordinates that were typed.
async function apply(dims) {
  $("problem").hidden = true;
  try {
    for (const d of dims) {
      const [low, high] = ["from", "to"].map((end) => $(`${end}-${d}`));
      if (low.value === low.dataset.shown && high.value === high.dataset.shown) continue;
      const found = await ask("between", { source: state.s, array: state.a, as_of: state.t, dim: d, low: low.value, high: high.value }, `between ${d}`);
      if (found.to - found.from < 2) throw new Error(`fewer than two positions of ${context.array.dimensions[d].name} are between ${low.value} and ${high.value}`);
      state.at[d] = `${found.from}:${found.to}`;
    }
    await moved();
  } catch (error) { fail(error); }
}

// The color range in values, and on the scale of the tile.
function limits() { const { low, high } = tile.header; return [state.lo ?? low, state.hi ?? high]; }

async function paint() {
  if (!tile) return;
  const colors = await table(state.c);
  const [low, high] = limits();
  if (tile.points) drawPoints(colors, low, high);
  else {
    const span = tile.header.high > tile.header.low ? tile.header.high - tile.header.low : 1;
    field.draw(tile, colors, (low - tile.header.low) / span, (high - tile.header.low) / span);
  }
  const scale = $("scale").getContext("2d"), image = new ImageData(1, 256);
  for (let i = 0; i < 256; i += 1) image.data.set([...colors.slice(3 * (255 - i), 3 * (255 - i) + 3), 255], 4 * i);
  scale.putImageData(image, 0, 0);
  const places = tile.header.empty ? [] : rounds(low, high, 6);
  fill($("bar-ticks"), ...places.map((v) => { const span = el("span", { text: number(v) }); span.style.top = `${high > low ? 100 * (1 - (v - low) / (high - low)) : 50}%`; return span; }));
  $("bar-title").textContent = [$("title").textContent, context.field.units && `[${context.field.units}]`].filter(Boolean).join(" ");
}

async function points() {
  const dims = context.array.dimensions.length;
  const x = state.x ?? dims - 1, y = state.y ?? (dims > 1 ? dims - 2 : x);
  const found = await ask("points", { ...subject(), at: context.countable ? at() : "", x, y }, "points");
  const values = found.points.map((p) => p[2]).filter((v) => typeof v === "number");
  const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const sorted = [...values].sort((a, b) => a - b), cut = Math.floor(values.length * 0.02);
  tile = { points: found, header: { low: values.length ? low : 0, high: values.length ? high : 0, empty: !values.length, robust: [sorted[cut] ?? 0, sorted[sorted.length - 1 - cut] ?? 0] } };
  fill($("x-ticks")); fill($("y-ticks")); $("x-title").textContent = ""; $("y-title").textContent = "";
  $("cross").hidden = true;
  $("empty").hidden = found.points.length > 0; $("empty").textContent = "No cells";
  $("note").textContent = found.more ? `The first ${count(found.points.length)} cells; select a smaller range for others.` : `${count(found.points.length)} cells.`;
  await paint();
}

function drawPoints(colors, low, high) {
  $("field").hidden = true;
  const plot = $("plot");
  for (const old of plot.querySelectorAll("svg")) old.remove();
  plot.style.height = tile.points.points.length ? "auto" : "220px";
  if (tile.points.points.length) plot.append(scatter(tile.points, colors, low, high));
}

// The position at a place of the map, from 0 to 1.
function position(fx, fy) {
  const pick = (axis, f) => { const n = axis.to - axis.from; const i = Math.min(n - 1, Math.max(0, Math.floor(f * n))); return axis.reversed ? axis.to - 1 - i : axis.from + i; };
  const { x, y } = tile.header;
  return state.at.map((item, d) => d === x?.dim ? pick(x, fx) : d === y?.dim ? pick(y, fy) : range(item)[0]);
}

// Stored positions: an axis of longitudes continues at its start.
const turned = (positions) => positions.map((p, d) => extent(d) ? p % extent(d) : p);
const ahead = (axis, p) => p < axis.from ? p + extent(axis.dim) : p;

function place(axis, p) { const n = axis.to - axis.from; const f = (p - axis.from + 0.5) / n; return axis.reversed ? 1 - f : f; }

function mark() {
  const { x, y } = tile?.header ?? {};
  const inside = state.p && x && y && [x, y].every((axis) => ahead(axis, state.p[axis.dim]) < axis.to);
  $("cross").hidden = !inside;
  if (inside) { $("cross").style.left = `${100 * place(x, ahead(x, state.p[x.dim]))}%`; $("cross").style.top = `${100 * place(y, ahead(y, state.p[y.dim]))}%`; }
}

async function read(positions) {
  const found = await ask("value", { ...subject(), at: positions.join(",") }, "value");
  const text = found.missing ? "missing" : found.text;
  $("reading").classList.toggle("long", text.length > 12);
  fill($("reading"), document.createTextNode(text), found.missing || !context.field.units ? null : el("small", { text: ` ${context.field.units}` }));
  fill($("place"), ...found.coordinates.flatMap((c, d) => [el("dt", { text: c.name }), el("dd", { text: `${c.text}${context.array.dimensions[d].units ? ` ${context.array.dimensions[d].units}` : ""}` })]));
  return found;
}

// The value and the series at the chosen point; the first one if none was chosen.
async function pointed() {
  const positions = state.p ?? state.at.map((item) => range(item)[0]);
  mark();
  await Promise.all([read(positions), series(positions)].map((job) => job.catch(fail)));
}

async function series(positions, all = false) {
  const { array, numeric } = context;
  const long = array.dimensions.map((_, d) => d).filter((d) => extent(d) > 1);
  $("series-card").hidden = !numeric || long.length === 0;
  if (!numeric || long.length === 0) return;
  const others = long.filter((d) => d !== state.x && d !== state.y);
  const d = long.includes(state.along) ? state.along : others[0] ?? state.x;
  fill($("along"), ...long.map((i) => option(i, array.dimensions[i].name)));
  $("along").value = String(d);
  const timed = array.dimensions[d].time, mean = state.of === "mean" && long.length > 1;
  $("of").value = mean ? "mean" : "point";
  $("of").disabled = long.length < 2;
  $("by-field").hidden = !mean || !timed;
  fill($("by"), ...PARTS.map(([part, text]) => option(part, text)));
  const by = mean && timed && PARTS.some(([part]) => part === state.by) ? state.by : "";
  $("by").value = by;
  const chosen = mean ? state.at.map((item, i) => i === d && item.indexOf(":") < 0 ? whole(i) : item) : positions.map((p, i) => i === d ? whole(i) : String(p));
  let found;
  try {
    found = mean ? await ask("means", { ...subject(), at: chosen.join(","), along: d, by, all: all ? "true" : "" }, "series") : await ask("series", { ...subject(), at: chosen.join(","), width: 1200 }, "series");
  } catch (error) {
    if (!ignored(error) && mean) { fill($("series"), el("p", { class: "muted", text: [error.message, error.hint].filter(Boolean).join(". ") })); fill($("ends")); $("series-note").textContent = ""; return; }
    throw error;
  }
  if (found.deferred) {
    const compute = () => { fill($("series"), el("p", { class: "muted", text: "Reading…" })); series(positions, true).catch(fail); };
    fill($("series"), el("p", { class: "muted", text: `Means of ${found.deferred.cells === null ? "very many" : count(found.deferred.cells)} cells, for which ${size(found.deferred.bytes)} are decoded.` }),
      el("button", { type: "button", id: "compute-series", text: "Compute", onclick: compute }));
    fill($("ends")); $("series-note").textContent = "";
    return;
  }
  const name = array.dimensions[d].name;
  const pick = (far) => { const p = far % extent(d); state.p = positions.map((own, i) => i === d ? p : own); if (d !== state.x && d !== state.y) { state.at[d] = String(p); sliders(); moved(); } else { save(); pointed().catch(fail); } };
  const chart = line(found, `${$("title").textContent} along ${name} from ${found.axis?.first} to ${found.axis?.last}: ${number(found.low)} to ${number(found.high)}`, found.grouped ? null : positions[d], found.grouped ? null : pick);
  const go = async (end) => {
    if (end.position !== null) { pick(end.position); return; }
    try { pick((await ask("between", { source: state.s, array: state.a, as_of: state.t, dim: d, low: end.text, high: end.text }, "end")).from); } catch (error) { fail(error); }
  };
  const units = context.field.units ? ` ${context.field.units}` : "";
  const end = (title, own) => own ? [el("span", { class: "muted", text: `${title} ` }), el("strong", { text: `${own.value}${units}` }), " at ",
    own.position !== null || by === "date" ? el("button", { type: "button", class: "link", text: own.text, "aria-label": `Show ${name} ${own.text}`, onclick: () => go(own) }) : el("span", { text: own.text })] : [];
  const both = [end("lowest", found.ends?.low), end("highest", found.ends?.high)].filter((parts) => parts.length);
  $("ends").replaceChildren(...both.flatMap((parts, i) => i ? [" · ", ...parts] : parts));
  fill($("series"), chart ?? el("p", { class: "muted", text: "No cell of this series is a finite number." }));
  $("series-note").textContent = mean ? `Means of ${count(found.cells)} cells, each with the same weight.${found.each ? "" : " Each point is the mean of adjacent ones."}` : found.sampled ? `A sample of ${count(found.cells)} of ${count(found.selected)} cells.` : found.each ? "" : "Each point is the mean of adjacent cells; the band spans their lowest and highest.";
}

// Parts of times that means are grouped by.
const PARTS = [["", "time"], ["date", "day"], ["year", "year"], ["month", "month of the year"], ["season", "season"], ["dayofyear", "day of the year"], ["hour", "hour of the day"]];

async function statistics(all = false) {
  $("stat-card").hidden = !context.numeric;
  if (!context.numeric) return;
  const here = { ...subject(), at: context.countable ? at() : "" };
  const rows = (found) => ["min", "max", "mean", "std", "sum", "count", "nulls", "nan", "inf"].filter((key) => found[key] !== null || ["min", "max"].includes(key) || found.not_defined?.includes(key)).map((key) => {
    const title = { min: "minimum", max: "maximum", mean: "mean", std: "standard deviation", sum: "sum", count: "cells", nulls: "missing", nan: "NaN", inf: "infinite" }[key];
    return el("div", {}, el("dt", { text: title }), el("dd", { id: `stat-${key}`, text: found.not_defined?.includes(key) ? "not defined" : found[key] === null ? "–" : String(found[key]) })); });
  try {
    const found = context.numeric && context.countable ? await ask("histogram", { ...here, bins: 60, all }, "statistics") : { statistics: await ask("statistics", here, "statistics"), counts: [] };
    if (found.deferred) {
      fill($("stats"), el("p", { class: "muted", text: `${found.deferred.cells === null ? "Very many" : count(found.deferred.cells)} cells, for which ${size(found.deferred.bytes)} are decoded.` }),
        el("button", { type: "button", id: "compute", text: "Compute", onclick: () => { fill($("stats"), el("p", { class: "muted", text: "Reading…" })); statistics(true).catch(fail); } }));
      fill($("histogram"));
      return;
    }
    fill($("stats"), el("dl", { class: "numbers" }, ...rows(found.statistics)));
    fill($("histogram"), found.counts.length ? columns(found, context.field.units ?? "") : null);
  } catch (error) {
    if (ignored(error)) return;
    fill($("stats"), el("p", { class: "muted", text: [error.message, error.hint].filter(Boolean).join(". ") }));
    fill($("histogram"));
  }
}

function zoom(factor, fx = 0.5, fy = 0.5) {
  if (!tile?.header.x || !tile.header.y) return;
  for (const [d, f, axis] of [[state.x, fx, tile.header.x], [state.y, fy, tile.header.y]]) {
    const [a, b] = range(state.at[d]), n = Math.min(extent(d), Math.max(2, Math.round((b - a) * factor)));
    const middle = a + (axis.reversed ? 1 - f : f) * (b - a);
    // The part may continue at the start of the axis, if it did before.
    const last = b > extent(d) ? extent(d) - 1 : extent(d) - n;
    const start = Math.min(last, Math.max(0, Math.round(middle - n * (axis.reversed ? 1 - f : f))));
    state.at[d] = `${start}:${start + n}`;
  }
  moved();
}

function reset() { for (const d of [state.x, state.y]) state.at[d] = whole(d); moved(); }

function choose(positions) { state.p = turned(positions); save(); pointed().catch(fail); }

function pointing() {
  const plot = $("plot");
  const of = (event) => { const box = plot.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((f) => Math.min(0.999999, Math.max(0, f))); };
  const ready = () => tile && !tile.points && tile.header.x && tile.header.y;
  let down = null;
  plot.addEventListener("pointermove", (event) => {
    if (!ready()) return;
    const now = of(event);
    if (down) {
      const box = $("box");
      box.hidden = Math.hypot(now[0] - down[0], now[1] - down[1]) < 0.02;
      for (const [side, i] of [["left", 0], ["top", 1]]) { box.style[side] = `${100 * Math.min(down[i], now[i])}%`; box.style[i ? "height" : "width"] = `${100 * Math.abs(down[i] - now[i])}%`; }
      return;
    }
    later("read", 40, () => read(turned(position(...now))).catch(fail));
  });
  plot.addEventListener("pointerleave", () => { if (ready() && !down) later("read", 150, () => read(state.p ?? state.at.map((item) => range(item)[0])).catch(fail)); });
  plot.addEventListener("pointerdown", (event) => { if (ready() && event.button === 0 && !event.target.closest("button")) { down = of(event); plot.setPointerCapture(event.pointerId); } });
  plot.addEventListener("pointercancel", () => { down = null; $("box").hidden = true; });
  plot.addEventListener("pointerup", (event) => {
    if (!ready() || !down) return;
    const from = position(...down), to = position(...of(event)), dragged = !$("box").hidden;
    down = null; $("box").hidden = true;
    if (!dragged) { choose(to); return; }
    for (const d of [state.x, state.y]) { const [a, b] = [Math.min(from[d], to[d]), Math.max(from[d], to[d]) + 1]; if (b - a > 1) state.at[d] = `${a}:${b}`; }
    moved();
  });
  plot.addEventListener("wheel", (event) => { if (ready() && event.ctrlKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.5 : 1 / 1.5, ...of(event)); } }, { passive: false });
  plot.addEventListener("keydown", (event) => {
    if (!ready()) return;
    const { x, y } = tile.header;
    cursor = (state.p ?? position(0.5, 0.5)).slice();
    for (const axis of [x, y]) cursor[axis.dim] = ahead(axis, cursor[axis.dim]);
    const move = (axis, step) => { cursor[axis.dim] = Math.min(axis.to - 1, Math.max(axis.from, cursor[axis.dim] + (axis.reversed ? -step : step))); };
    const size = event.shiftKey ? 10 : 1;
    const keys = { ArrowLeft: () => move(x, -size), ArrowRight: () => move(x, size), ArrowUp: () => move(y, -size), ArrowDown: () => move(y, size), Enter: () => {}, "+": () => zoom(0.5), "-": () => zoom(2), 0: reset };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
    if (event.key.startsWith("Arrow") || event.key === "Enter") { state.p = turned(cursor); mark(); later("key", 120, () => { save(); pointed().catch(fail); }); }
  });
}

async function pick(s, a, f) {
  const elsewhere = s !== state.s;
  Object.assign(state, { s, a, f, at: [], x: null, y: null, p: null, lo: null, hi: null, along: null });
  if (elsewhere) { state.t = ""; await versions(); }
  tile = null;
  panels.reset();
  if (window.innerWidth <= 820) $("tree-box").open = false;
  window.scrollTo({ top: 0 });
  where();
  await Promise.all([tree.draw(sources, pick), show()]);
  say(`${$("title").textContent} is shown`);
}

async function travel(time) { state.t = time; tile = null; if ($("version").value !== time) $("version").value = time; await tree.draw(sources, pick).catch(fail); await show(); say(time ? `State as of ${$("version").selectedOptions[0]?.text ?? time}` : "Newest state"); }

async function versions() {
  const source = sources[state.s];
  $("version-field").hidden = !source?.versioned;
  if (!source?.versioned) return;
  const found = await ask("versions", { source: state.s }, "versions list");
  const times = new Map(found.versions.map((version) => [String(version.timestamps[1]), version.at]));
  fill($("version"), option("", "newest"), ...[...times].map(([time, text]) => option(time, text)));
  $("version").value = times.has(state.t) ? state.t : "";
}

function where() { const source = sources[state.s]; $("where").textContent = source ? `${source.name} · ${source.format}` : ""; $("where").title = $("where").textContent; }

async function start() {
  load();
  ({ sources } = await ask("sources"));
  if (!sources[state.s]) Object.assign(state, { s: 0, a: null });
  await versions();
  if (window.innerWidth <= 820) $("tree-box").open = false;
  if (state.a === null) {
    const { arrays } = await tree.arrays(state.s);
    const data = arrays.filter((array) => !array.error);
    const first = data.find((array) => !array.coordinate && array.role === "data" && array.dims.length > 1) ?? data.find((array) => !array.coordinate) ?? data[0];
    state.a = first?.index ?? null;
  }
  where();
  await tree.draw(sources, pick);
  await show();
  document.body.dataset.ready = "true";
}

$("filter").addEventListener("input", () => later("filter", 120, () => tree.draw(sources, pick).catch(fail)));
$("version").addEventListener("change", (event) => travel(event.target.value).catch(fail));
$("along").addEventListener("change", (event) => { state.along = Number(event.target.value); recount(); });
const recount = () => { save(); pointed().catch(fail); if (state.tab === "code") panels.draw(context).catch(fail); };
$("of").addEventListener("change", (event) => { state.of = event.target.value; recount(); });
$("by").addEventListener("change", (event) => { state.by = event.target.value; recount(); });
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  paint().catch(fail);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => paint().catch(fail));
window.addEventListener("resize", () => later("resize", 200, () => { if (context && !tile?.points) map().catch(fail); }));
window.addEventListener("hashchange", () => { load(); show().catch(fail); });
pointing();
start().catch((error) => { $("title").textContent = "The page cannot be shown"; fail(error); });
