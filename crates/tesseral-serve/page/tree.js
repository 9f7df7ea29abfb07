// The list of arrays, by group: data first, then coordinates.
import { ask } from "./api.js";
import { $, el, fill } from "./dom.js";
import { state } from "./state.js";

export const lists = new Map();
// Whether the list of a source was opened or closed by the reader.
const open = new Map();

// Arrays of a source so far, and how many there are.
export async function arrays(source) {
  const key = `${source} ${state.t}`;
  if (!lists.has(key)) lists.set(key, await ask("arrays", { source, as_of: source === state.s ? state.t : "" }, `arrays ${source}`));
  return lists.get(key);
}

async function more(source, list) {
  const next = await ask("arrays", { source, as_of: state.t, from: list.arrays.length }, `arrays ${source}`);
  list.arrays.push(...next.arrays);
}

function shape(array) {
  const dims = array.dims.map((dim) => `${dim.name} ${dim.extent ?? ""}`.trim()).join(", ");
  return (dims || "scalar") + (array.sparse ? " (sparse)" : "");
}

function items(array, source, pick) {
  if (array.error) return [el("div", { class: "tree-item" }, el("span", { text: array.name }), el("small", { text: array.error.error }))];
  const name = array.variable.split("/").at(-1);
  return array.fields.map((field, f) => {
    const own = array.fields.length > 1 ? field.name || "(unnamed)" : name;
    const current = source === state.s && array.index === state.a && f === state.f;
    const text = [field.long_name, field.units].filter(Boolean).join(", ");
    return el("button", { type: "button", class: "tree-item", "aria-current": current ? "true" : null, onclick: () => pick(source, array.index, f) },
      el("span", { text: own || "(unnamed)" }), el("small", { text: text || field.dtype }), el("small", { text: shape(array) }));
  });
}

export async function draw(sources, pick) {
  const wanted = $("filter").value.trim().toLowerCase();
  const all = [];
  for (const [s, source] of sources.entries()) {
    const nodes = [];
    const list = await arrays(s);
    const fits = (array) => !wanted || array.variable?.toLowerCase().includes(wanted) || array.name.toLowerCase().includes(wanted) ||
      array.fields?.some((field) => `${field.name} ${field.long_name ?? ""}`.toLowerCase().includes(wanted));
    const groups = new Map();
    for (const array of list.arrays.filter(fits)) {
      const parts = (array.variable ?? array.name).split("/");
      const base = parts.slice(0, -1).join("/") || (array.fields?.length > 1 ? array.variable : "");
      const group = array.coordinate ? `${base ? `${base}: ` : ""}coordinates` : base;
      groups.set(group, [...(groups.get(group) ?? []), ...items(array, s, pick)]);
    }
    const order = [...groups].sort(([a], [b]) => a.endsWith("coordinates") - b.endsWith("coordinates"));
    for (const [group, found] of order) {
      if (group) nodes.push(el("div", { class: "tree-group", text: group }));
      nodes.push(...found);
    }
    if (list.arrays.length < list.total) {
      nodes.push(el("button", { type: "button", text: `Show more (${list.arrays.length} of ${list.total})`, onclick: async () => { await more(s, list); draw(sources, pick); } }));
    }
    if (groups.size === 0) nodes.push(el("p", { class: "muted", text: wanted ? "Nothing found" : "No arrays" }));
    if (sources.length === 1) { all.push(...nodes); continue; }
    // Many sources fill several screens: only the one that is shown is open, unless the list is searched.
    const box = el("details", { class: "source", open: open.get(s) ?? (wanted !== "" || sources.length <= 2 || s === state.s), title: source.name }, el("summary", { text: source.name.replace(/\/+$/, "").split("/").at(-1) || source.name }), ...nodes);
    box.addEventListener("toggle", () => { if ($("filter").value.trim() === "") open.set(s, box.open); });
    all.push(box);
  }
  fill($("tree"), ...all);
}
