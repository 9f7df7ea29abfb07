// Requests to the server. A newer request of the same kind cancels the older one, and with it the work of the server.
const running = new Map();

export class Failure extends Error {
  constructor(body) { super([body.error, ...(body.causes ?? [])].join(": ")); this.hint = body.hint; this.kind = body.kind; }
}

export function query(path, parameters) {
  const pairs = Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `/api/${path}?${new URLSearchParams(pairs)}`;
}

async function send(path, parameters, kind) {
  running.get(kind)?.abort();
  const control = new AbortController();
  running.set(kind, control);
  const response = await fetch(query(path, parameters), { signal: control.signal, credentials: "same-origin" });
  if (response.ok) return response;
  let body = { error: `the server answered ${response.status}` };
  const text = await response.text();
  try { body = JSON.parse(text); } catch { if (text) body.error = text.trim(); }
  throw new Failure(body);
}

export async function ask(path, parameters, kind = path) { return (await send(path, parameters, kind)).json(); }

// A map: header, values from 0 to 1, and what is no value: -1 missing, -2 not finite.
export async function plane(parameters) {
  const buffer = await (await send("plane", parameters, "plane")).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const n = header.width * header.height;
  const values = new Float32Array(buffer, 4 + length, n);
  const kinds = new Uint8Array(buffer, 4 + length + 4 * n, n);
  for (let i = 0; i < n; i += 1) if (kinds[i] !== 0) values[i] = -kinds[i];
  return { header, values };
}

export const ignored = (error) => error.name === "AbortError";
