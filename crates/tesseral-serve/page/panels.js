// Details below the view: attributes, table, chunks, versions, downloads, and the view as code.
import { ask, ignored, query } from "./api.js";
import { $, count, el, fill, size } from "./dom.js";
import { at, save, state, subject } from "./state.js";

export const TABS = [["attributes", "Attributes"], ["table", "Table"], ["chunks", "Chunks"], ["versions", "Versions"], ["download", "Download"], ["code", "Copy as"]];
let pages = { table: 0, chunks: [0] };
let condition = "";

export function reset() { pages = { table: 0, chunks: [0] }; condition = ""; }

function plain(value) { return typeof value === "string" ? value : JSON.stringify(value); }

function table(heads, rows, numbers = []) {
  const cell = (value, i) => value === null || value === undefined ? el("td", { class: "null", text: "missing" }) : el("td", { class: numbers.includes(i) ? "number" : "", text: value });
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col", text: head })))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell))))));
}

function pager(kind, step, shown, more, redraw) {
  const go = (change) => () => { pages[kind] = Math.max(0, pages[kind] + change); redraw(); };
  return el("div", { class: "pager" }, el("button", { type: "button", text: "Previous", disabled: pages[kind] === 0, onclick: go(-step) }),
    el("button", { type: "button", text: "Next", disabled: !more, onclick: go(step) }),
    el("span", { class: "muted", text: shown ? `${count(pages[kind] + 1)} to ${count(pages[kind] + shown)}` : "nothing" }));
}

function attributes(context) {
  const rows = (attributes) => Object.entries(attributes ?? {}).map(([name, value]) => [name, plain(value)]);
  const own = rows(context.array.attributes), source = rows(context.source.attributes);
  const dims = context.array.dimensions.map((dim) => [dim.name, dim.extent === null ? "–" : count(dim.extent), dim.first !== null && dim.first !== undefined ? `${dim.first} … ${dim.last}` : dim.domain ? dim.domain.join(" … ") : "–", dim.units ?? "", dim.dtype, dim.long_name ?? ""]);
  return [el("h2", { text: "Dimensions" }), dims.length ? table(["name", "size", "range", "units", "dtype", "description"], dims, [1]) : el("p", { class: "muted", text: "A scalar has none." }),
    el("h2", { text: "Attributes" }), own.length ? table(["name", "value"], own) : el("p", { class: "muted", text: "None" }),
    source.length ? el("h2", { text: "Attributes of the source" }) : null, source.length ? table(["name", "value"], source) : null,
    context.source.history.length ? el("h2", { text: "History" }) : null,
    context.source.history.length ? table(["operation", "source", "at"], context.source.history.map((row) => [row.op, row.source, row.at])) : null];
}

async function rows(context, redraw) {
  const input = el("input", { type: "text", value: condition, placeholder: "value > 10", "aria-label": "Condition" });
  const form = el("div", { class: "pager" }, el("label", { class: "field" }, "Rows where ", input), el("button", { type: "button", text: "Apply", onclick: () => { condition = input.value; pages.table = 0; redraw(); } }));
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { condition = input.value; pages.table = 0; redraw(); } });
  try {
    const found = await ask("rows", { ...subject(), at: at(), from: pages.table, where: condition }, "rows");
    const heads = found.columns.map((column) => column.name || "(unnamed)");
    return [form, found.rows.length ? table(heads, found.rows) : el("p", { class: "muted", text: "No rows" }), pager("table", 200, found.rows.length, found.more, redraw)];
  } catch (error) {
    if (ignored(error)) throw error;
    return [form, el("p", { class: "problem", text: [error.message, error.hint].filter(Boolean).join(". ") })];
  }
}

async function chunks(context, redraw) {
  const found = await ask("chunks", { ...subject(), from: pages.chunks.at(-1) }, "chunks");
  const name = context.field.name;
  const row = (chunk) => { const own = chunk.statistics?.[name] ?? Object.values(chunk.statistics ?? {})[0];
    return [chunk.coords.join(", "), size(chunk.raw_bytes), size(chunk.stored_bytes), chunk.raw_bytes && chunk.stored_bytes ? `${(chunk.raw_bytes / chunk.stored_bytes).toFixed(2)}` : "–", chunk.codec || "raw", count(chunk.offset),
      chunk.bounds ? chunk.bounds.map((pair) => pair.join("…")).join(", ") : chunk.cells !== undefined ? count(chunk.cells) : "–", own ? `${own.min ?? "–"} … ${own.max ?? "–"}` : "–"]; };
  const facts = `${found.total === null ? "An unknown number of" : count(found.total)} chunks, ${size(found.stored)} stored, ${found.digests ? "with digests" : "without digests"}`;
  const heads = ["chunk", "decoded", "stored", "ratio", "codec", "offset", "bounds", "minimum … maximum"], rows = found.chunks.map(row);
  // Not every format has bounds and statistics.
  const used = heads.map((_, i) => i).filter((i) => rows.some((row) => row[i] !== "–"));
  const turn = (text, disabled, change) => el("button", { type: "button", text, disabled, onclick: () => { change(); redraw(); } });
  return [el("p", { class: "muted", text: facts }), table(used.map((i) => heads[i]), rows.map((row) => used.map((i) => row[i])), [1, 2, 3, 5].map((i) => used.indexOf(i))),
    el("div", { class: "pager" }, turn("Previous", pages.chunks.length === 1, () => pages.chunks.pop()), turn("Next", found.next === null, () => pages.chunks.push(found.next)),
      el("span", { class: "muted", text: rows.length ? `from chunk ${count(found.from + 1)}` : "no stored chunks here" }))];
}

async function versions(context) {
  const found = await ask("versions", { source: state.s }, "versions");
  if (!found.versions.length) return [el("p", { class: "muted", text: "This source keeps no versions." })];
  const show = (version) => { const row = [version.at, version.op, version.state, version.cells === null ? "–" : count(version.cells), version.bytes === null ? "–" : size(version.bytes), version.name]; return row; };
  const made = table(["time (UTC)", "operation", "state", "cells", "size", "fragment"], found.versions.map(show), [3, 4]);
  [...made.querySelectorAll("tbody tr")].forEach((row, i) => row.append(el("td", {}, el("button", { type: "button", text: "Show", onclick: () => context.travel(String(found.versions[i].timestamps[1])) }))));
  return [made];
}

async function downloads(context) {
  const { formats } = await ask("formats", {}, "formats");
  const here = { ...subject(), at: at() };
  const link = (kind, title, extra = {}) => el("a", { href: query("download", { ...here, kind, ...extra }), text: title, download: "" });
  const colors = { colors: state.c, low: state.lo, high: state.hi };
  return [el("p", { class: "muted", text: "The cells that are shown, with their coordinates." }),
    el("div", { class: "links" }, link("csv", "CSV"), context.numeric ? link("png", "PNG picture", colors) : null, context.numeric ? link("svg", "SVG picture", colors) : null,
      ...formats.map((format) => link(format.kind, format.title + (format.zipped ? " (zip)" : ""))))];
}

const shell = (word) => /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
const quoted = (word) => JSON.stringify(word);

// The shown cells as a command, and as programs.
export function code(context) {
  const path = context.source.name, array = context.array;
  const name = array.fields.length > 1 ? `${array.name}/${context.field.name}` : array.name;
  // Positions end with the axis: a part that continues at its start is named by its coordinates.
  const crossing = (item, d) => Number(item.split(":")[1]) > array.dimensions[d].extent && context.ends?.[d] ? context.ends[d].join("..") : item;
  const parts = state.at.map((item, d) => [array.dimensions[d].named ? array.dimensions[d].name : String(d), crossing(item, d), array.dimensions[d]]).filter(([, item, dim]) => item !== `0:${dim.extent}`);
  const words = parts.map(([dim, item]) => `${dim}=${item}`);
  const flags = [state.raw ? "--stored" : "", state.t ? `--as-of ${shell(state.t)}` : ""].filter(Boolean);
  const command = (verb) => ["tet", verb, shell(path), shell(name), ...words.map(shell), ...flags].join(" ");
  // The series of means, the lowest first.
  const along = state.along ?? array.dimensions.findIndex((dim, d) => d !== state.x && d !== state.y && dim.extent > 1);
  const kept = array.dimensions[along];
  const named = kept ? (kept.named ? kept.name : String(along)) : null;
  const others = parts.filter(([dim]) => dim !== named).map(([dim, item]) => `${dim}=${item}`);
  const by = named && kept.time && state.by ? `${named}.${state.by}` : named;
  const means = state.of === "mean" && named ? ["tet", "stat", shell(path), shell(name), ...others.map(shell), "--mean", "--by", shell(by), "--sort", "mean", "-n", "3", ...flags].join(" ") : "";
  // Python counts `2:5` as slices; what is not named is whole.
  const slices = (chosen) => chosen.map(([dim, item]) => `${quoted(dim)}: ${item.includes(":") ? `slice(${item.replace(":", ", ")})` : item}`).join(", ");
  const part = (chosen) => { const [own, far] = [false, true].map((crosses) => chosen.filter(([, item]) => item.includes("..") === crosses));
    return (own.length ? `.isel({${slices(own)}})` : "") + far.map(([dim, item]) => `.sel({${quoted(dim)}: slice(${item.split("..").map((end) => Number.isFinite(Number(end)) ? end : quoted(end)).join(", ")})})`).join(""); };
  const read = context.packed && !state.raw ? ".decoded()" : "[...]";
  const mean = (axes) => `.mean(${axes}${state.raw ? ", stored=True" : ""})`;
  const rest = parts.filter(([dim]) => dim !== named), over = array.dimensions.map((dim, d) => dim.named ? dim.name : String(d)).filter((dim) => dim !== named && !rest.some(([own, item]) => own === dim && /^\d+$/.test(item)));
  const opened = state.t ? `tesseral.open(${quoted(path)}, as_of=${quoted(state.t)})` : `tesseral.open(${quoted(path)})`;
  const python = `import tesseral\n\narray = ${opened}[${quoted(name)}]\nprint(array${part(parts)}${read})${!means ? "" : kept.time && state.by
    ? `\n\ngroups = array${part(rest)}.groupby(${quoted(by)})\nmeans = groups${mean("...")}\nprint(groups.labels[means.argmin()], means.min())`
    : `\n\nmeans = array${part(rest)}${mean(`[${over.map(quoted).join(", ")}]`)}\nprint(means.argmin(), means.min())`}`;
  const open = state.t ? `tesseral::Open::new().as_of(tesseral::as_of(${quoted(state.t)})?).open(${quoted(path)})?` : `tesseral::open(${quoted(path)})?`;
  const rust = `let container = ${open}${state.raw ? "" : ".physical()"};\nlet (array, _) = container.find(${quoted(name)})?;\n${words.some((word) => word.includes(".."))
    ? `let (array, selection) = array.narrowed([${words.map(quoted).join(", ")}])?;\nlet cells = array.read(&selection)?;`
    : `let cells = array.read(&array.select([${words.map(quoted).join(", ")}])?)?;`}`;
  return { cat: command("cat"), stat: command("stat"), plot: command("plot"), means, python, rust };
}

function snippets(context) {
  const made = code(context);
  const one = (title, id, text) => [el("div", { class: "line" }, el("h2", { text: title }), el("button", { type: "button", text: "Copy", "aria-label": `Copy ${title}`, onclick: () => navigator.clipboard?.writeText(text) })), el("pre", { id, text })];
  return [...one("Command line", "code-cli", [made.cat, made.stat, context.numeric ? made.plot : "", made.means].filter(Boolean).join("\n")), ...one("Python", "code-python", made.python), ...one("Rust", "code-rust", made.rust)];
}

export async function draw(context) {
  const tabs = TABS.filter(([id]) => id !== "versions" || context.source.versioned);
  if (!tabs.some(([id]) => id === state.tab)) state.tab = "attributes";
  const pick = (id) => { state.tab = id; save(); draw(context).then(() => $(`tab-${id}`)?.focus()); };
  const made = tabs.map(([id, title], i) => el("button", { type: "button", role: "tab", id: `tab-${id}`, text: title, "aria-selected": String(id === state.tab), "aria-controls": "panel", tabIndex: id === state.tab ? 0 : -1,
    onclick: () => pick(id), onkeydown: (event) => { const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]; if (step) pick(tabs[(i + step + tabs.length) % tabs.length][0]); } }));
  fill($("tabs"), ...made);
  $("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
  const again = () => draw(context);
  const build = { attributes: () => attributes(context), table: () => rows(context, again), chunks: () => chunks(context, again), versions: () => versions(context), download: () => downloads(context), code: () => snippets(context) };
  const own = state.tab;
  try {
    const nodes = await build[own]();
    if (own === state.tab) fill($("panel"), ...nodes);
  } catch (error) {
    if (!ignored(error)) fill($("panel"), el("p", { class: "problem", text: [error.message, error.hint].filter(Boolean).join(". ") }));
  }
}
