// A field as colors: WebGL2, or pixels on a canvas where that is missing.
const VERTEX = `#version 300 es
in vec2 place; out vec2 at; void main() { at = vec2(place.x, 1.0 - place.y); gl_Position = vec4(place * 2.0 - 1.0, 0.0, 1.0); }`;
const FRAGMENT = `#version 300 es
precision highp float; precision highp sampler2D;
in vec2 at; out vec4 color; uniform sampler2D values; uniform sampler2D colors; uniform vec2 range; uniform vec3 missing; uniform vec3 hatch;
void main() {
  ivec2 size = textureSize(values, 0);
  float v = texelFetch(values, min(ivec2(at * vec2(size)), size - 1), 0).r;
  if (v < -1.5) { color = vec4(0.43, 0.43, 0.43, 1.0); return; }
  if (v < -0.5) { color = vec4(mod(gl_FragCoord.x + gl_FragCoord.y, 10.0) < 1.5 ? hatch : missing, 1.0); return; }
  float place = range.y > range.x ? clamp((v - range.x) / (range.y - range.x), 0.0, 1.0) : 0.5;
  color = vec4(texelFetch(colors, ivec2(int(place * 255.0 + 0.5), 0), 0).rgb, 1.0);
}`;

function rgb(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

export class Field {
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl2", { antialias: false, preserveDrawingBuffer: true });
    if (this.gl && !this.prepare()) this.gl = null;
    this.pixels = this.gl ? null : canvas.getContext("2d");
  }

  get kind() { return this.gl ? "webgl2" : "2d"; }

  prepare() {
    const gl = this.gl;
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source); gl.compileShader(shader); gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return false;
    gl.useProgram(program);
    this.program = program;
    gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([0, 0, 1, 0, 0, 1, 1, 1]), gl.STATIC_DRAW);
    const place = gl.getAttribLocation(program, "place");
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, 2, gl.FLOAT, false, 0, 0);
    this.textures = [gl.createTexture(), gl.createTexture()];
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    return true;
  }

  upload(unit, inner, width, height, format, type, data) {
    const gl = this.gl;
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.bindTexture(gl.TEXTURE_2D, this.textures[unit]);
    gl.texImage2D(gl.TEXTURE_2D, 0, inner, width, height, 0, format, type, data);
    for (const key of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, key, gl.NEAREST);
    for (const key of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, key, gl.CLAMP_TO_EDGE);
  }

  // Draws values from 0 to 1 with the colors between `low` and `high`.
  draw(tile, colors, low, high) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const box = this.canvas.parentElement.getBoundingClientRect();
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    const { width, height } = tile.header;
    const [missing, hatch] = [rgb("--missing"), rgb("--hatch")];
    if (!this.gl) { this.paint(tile, colors, low, high, missing); return; }
    const gl = this.gl;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    this.upload(0, gl.R32F, width, height, gl.RED, gl.FLOAT, tile.values);
    this.upload(1, gl.RGB8, 256, 1, gl.RGB, gl.UNSIGNED_BYTE, colors);
    const at = (name) => gl.getUniformLocation(this.program, name);
    gl.uniform1i(at("values"), 0); gl.uniform1i(at("colors"), 1); gl.uniform2f(at("range"), low, high);
    gl.uniform3f(at("missing"), ...missing.map((v) => v / 255)); gl.uniform3f(at("hatch"), ...hatch.map((v) => v / 255));
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }

  paint(tile, colors, low, high, missing) {
    const { width, height } = tile.header;
    const image = new ImageData(width, height);
    for (let i = 0; i < tile.values.length; i += 1) {
      const v = tile.values[i];
      const place = high > low ? Math.min(1, Math.max(0, (v - low) / (high - low))) : 0.5;
      const c = 3 * Math.round(place * 255);
      const color = v < -1.5 ? [110, 110, 110] : v < -0.5 ? missing : [colors[c], colors[c + 1], colors[c + 2]];
      image.data.set([...color, 255], 4 * i);
    }
    const small = new OffscreenCanvas(width, height);
    small.getContext("2d").putImageData(image, 0, 0);
    this.pixels.imageSmoothingEnabled = false;
    this.pixels.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
  }
}
