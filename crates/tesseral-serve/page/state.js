// The view, which the address holds after "#": a link shows the same cells.
export const state = { s: 0, a: null, f: 0, t: "", x: null, y: null, at: [], p: null, c: "viridis", lo: null, hi: null, tab: "attributes", along: null, of: "point", by: "", raw: false };

export function load() {
  const pairs = new URLSearchParams(location.hash.slice(1));
  const whole = (key, otherwise) => { const v = pairs.get(key); return v !== null && /^\d+$/.test(v) ? Number(v) : otherwise; };
  const real = (key) => { const v = pairs.get(key); return v !== null && v !== "" && Number.isFinite(Number(v)) ? Number(v) : null; };
  state.s = whole("s", 0); state.a = whole("a", null); state.f = whole("f", 0);
  state.t = pairs.get("t") ?? ""; state.x = whole("x", null); state.y = whole("y", null);
  state.at = (pairs.get("at") ?? "").split(",").filter((item) => /^\d+(:\d+)?$/.test(item));
  state.p = (pairs.get("p") ?? "").split(",").filter((item) => /^\d+$/.test(item)).map(Number);
  if (state.p.length === 0) state.p = null;
  state.c = pairs.get("c") ?? "viridis"; state.lo = real("lo"); state.hi = real("hi");
  state.tab = pairs.get("tab") ?? "attributes"; state.along = whole("along", null); state.of = pairs.get("of") === "mean" ? "mean" : "point"; state.by = /^[a-z]*$/.test(pairs.get("by") ?? "") ? pairs.get("by") ?? "" : ""; state.raw = pairs.get("raw") === "1";
}

export function save() {
  const pairs = new URLSearchParams();
  for (const key of ["s", "a", "f", "t", "x", "y", "c", "lo", "hi", "tab", "along"]) {
    if (state[key] !== null && state[key] !== "") pairs.set(key, state[key]);
  }
  if (state.at.length) pairs.set("at", state.at.join(","));
  if (state.p) pairs.set("p", state.p.join(","));
  if (state.of === "mean") { pairs.set("of", "mean"); if (state.by) pairs.set("by", state.by); }
  if (state.raw) pairs.set("raw", "1");
  history.replaceState(null, "", `#${pairs}`);
}

// Parameters that name the array and its field.
export const subject = () => ({ source: state.s, array: state.a, field: state.f, as_of: state.t, stored: state.raw ? "true" : "" });

// Positions of all dimensions with some replaced.
export function at(changes = {}) { return state.at.map((item, d) => changes[d] ?? item).join(","); }
