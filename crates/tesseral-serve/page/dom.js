// Elements of the page. Text is only ever set as text: names and attributes of a file cannot become markup.
export const $ = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = String(value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key in node && !key.includes("-") && key !== "list") node[key] = value;
    else node.setAttribute(key, String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function fill(node, ...children) { node.replaceChildren(...children.filter(Boolean)); }

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "unknown size";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (bytes >= 1024 && i < units.length - 1) { bytes /= 1024; i += 1; }
  return `${i === 0 ? bytes : bytes.toFixed(1)} ${units[i]}`;
}

export function count(n) { return typeof n === "number" ? n.toLocaleString("en-US") : String(n); }

export function number(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-3)) return value.toExponential(4);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(7)));
}

export function say(text) { $("status").textContent = text; }

export function option(value, text) { return el("option", { value: String(value), text }); }
