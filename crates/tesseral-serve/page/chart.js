// Charts as SVG: a line along one dimension, columns of a histogram, points of a sparse array.
import { number } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const H = 230, LEFT = 76, RIGHT = 16, TOP = 12, BOTTOM = 38;
// Width of charts in their own units: less on a narrow screen, so that text keeps its size.
let W = 900;

function node(tag, attributes = {}, text = null) {
  const made = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== null) made.textContent = text;
  return made;
}

function frame(label, height = H) { W = window.innerWidth <= 820 ? 480 : 900; return node("svg", { class: "chart", viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": label }); }

export function rounds(low, high, most = 5) {
  if (!(high > low)) return [low];
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) out.push(Number((i * step).toPrecision(12)));
  return out;
}

function values(svg, low, high, y, height = H) {
  for (const tick of rounds(low, high)) {
    svg.append(node("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(tick), y2: y(tick) }));
    svg.append(node("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
  }
}

export function line(series, label, marked = null, pick = null) {
  const svg = frame(label);
  const { values: list, low, high, axis } = series;
  if (typeof low !== "number") return null;
  const pad = high > low ? (high - low) * 0.04 : Math.abs(high) * 0.05 || 1;
  const [from, to] = [low - pad, high + pad];
  const y = (v) => TOP + (1 - (v - from) / (to - from)) * (H - TOP - BOTTOM);
  const x = (place) => LEFT + place * (W - LEFT - RIGHT);
  values(svg, from, to, y);
  let end = -Infinity;
  for (const [place, text] of axis?.ticks ?? []) {
    // Labels that would touch another, at about seven units for each character, are left out.
    const half = 3.5 * text.length, px = Math.min(W - half, x(place));
    if (px - half < end + 6) continue;
    end = px + half;
    svg.append(node("text", { x: px, y: H - 20, "text-anchor": "middle" }, text));
  }
  svg.append(node("text", { x: (LEFT + W - RIGHT) / 2, y: H - 4, "text-anchor": "middle" }, axis?.title ?? ""));
  const width = (W - LEFT - RIGHT) / list.length;
  let band = "";
  (series.bands ?? []).forEach((ends, i) => { if (ends) band += `M${x(i / list.length).toFixed(1)},${y(ends[1]).toFixed(1)}h${width.toFixed(2)}V${y(ends[0]).toFixed(1)}h${(-width).toFixed(2)}Z`; });
  if (band) svg.append(node("path", { class: "band", d: band }));
  let run = [];
  const flush = () => {
    if (run.length === 1) { const [px, py] = run[0].split(","); svg.append(node("circle", { class: "dot", cx: px, cy: py, r: 2.5 })); }
    if (run.length > 1) svg.append(node("polyline", { class: "data", points: run.join(" ") }));
    run = [];
  };
  list.forEach((v, i) => { if (typeof v === "number") run.push(`${x((i + 0.5) / list.length).toFixed(1)},${y(v).toFixed(1)}`); else flush(); });
  flush();
  if (marked !== null && axis) {
    const px = x((marked - axis.from + 0.5) / (axis.to - axis.from));
    svg.append(node("line", { class: "mark", x1: px, x2: px, y1: TOP, y2: H - BOTTOM }));
  }
  if (pick && axis) svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT);
    if (place >= 0 && place < 1) pick(axis.from + Math.floor(place * (axis.to - axis.from)));
  });
  return svg;
}

export function columns({ counts, edges, times }, units) {
  const most = Math.max(...counts, 1), height = 170;
  const edge = (i) => times ? times[i] : number(edges[i]);
  const svg = frame(`Histogram of ${counts.length} bins from ${edge(0)} to ${edge(counts.length)} ${times ? "" : units}`, height);
  const y = (v) => TOP + (1 - v / most) * (height - TOP - BOTTOM);
  values(svg, 0, most, y);
  const width = (W - LEFT - RIGHT) / counts.length;
  counts.forEach((n, i) => {
    const bar = node("rect", { class: "column", x: (LEFT + i * width + 0.5).toFixed(1), width: Math.max(0.5, width - 1).toFixed(1), y: y(n).toFixed(1), height: (y(0) - y(n)).toFixed(1) });
    bar.append(node("title", {}, `${edge(i)} to ${edge(i + 1)}: ${n}`));
    svg.append(bar);
  });
  const [low, high] = [edges[0], edges.at(-1)];
  if (times) {
    for (const [i, px, anchor] of [[0, LEFT, "start"], [counts.length, W - RIGHT, "end"]]) svg.append(node("text", { x: px, y: height - 16, "text-anchor": anchor }, edge(i)));
    return svg;
  }
  const ticks = typeof low === "number" && high > low ? rounds(low, high, 7) : [low];
  for (const tick of ticks) {
    const px = high > low ? LEFT + (tick - low) / (high - low) * (W - LEFT - RIGHT) : (LEFT + W - RIGHT) / 2;
    svg.append(node("text", { x: px, y: height - 21, "text-anchor": "middle" }, number(tick)));
  }
  svg.append(node("text", { x: (LEFT + W - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, units));
  return svg;
}

export function scatter({ points, x: xName, y: yName }, colors, low, high) {
  const height = 460;
  const svg = frame(`${points.length} cells by ${xName} and ${yName}`, height);
  const ends = (i) => { const all = points.map((p) => p[i]).filter(Number.isFinite); let [a, b] = [Math.min(...all), Math.max(...all)]; if (!(b > a)) { a -= 1; b += 1; } const pad = (b - a) * 0.03; return [a - pad, b + pad]; };
  const [x0, x1] = ends(0), [y0, y1] = ends(1);
  const x = (v) => LEFT + (v - x0) / (x1 - x0) * (W - LEFT - RIGHT), y = (v) => TOP + (1 - (v - y0) / (y1 - y0)) * (height - TOP - BOTTOM);
  values(svg, y0, y1, y, height);
  for (const tick of rounds(x0, x1, 7)) svg.append(node("text", { x: x(tick), y: height - 16, "text-anchor": "middle" }, number(tick)));
  svg.append(node("text", { x: (LEFT + W - RIGHT) / 2, y: height - 1, "text-anchor": "middle" }, xName));
  svg.append(node("text", { x: 4, y: 10 }, yName));
  for (const [px, py, v, xText, yText] of points) {
    if (!Number.isFinite(px) || !Number.isFinite(py)) continue;
    const place = typeof v === "number" && high > low ? Math.round(Math.min(1, Math.max(0, (v - low) / (high - low))) * 255) : 128;
    const color = typeof v === "number" ? `rgb(${colors[3 * place]} ${colors[3 * place + 1]} ${colors[3 * place + 2]})` : "#6e6e6e";
    const dot = node("circle", { cx: x(px).toFixed(1), cy: y(py).toFixed(1), r: points.length > 4000 ? 1.8 : 3.5, fill: color });
    dot.append(node("title", {}, `${xName} ${xText}, ${yName} ${yText}: ${v === null ? "missing" : v}`));
    svg.append(dot);
  }
  return svg;
}
