// The timeline: a lane for each writer and each service, a bar from requested to completed. Bars of one lane that
// overlap get rows of their own. One canvas as large as what is in sight; ten thousand bars are a few hundred pixels.
import { h, say, short, number } from "./dom.js";
import { ms, ticks, tickText, span, clock, day } from "./times.js";

const ROW = 13, PAD = 9, AXIS = 26, GUTTER = 150, BAR = 9, HUES = 8, MOST_ROWS = 24;
const WRITES = new Set(["commit", "deltacommit", "replacecommit"]);
const REWRITES = { COMPACT: "compaction", LOG_COMPACT: "log compaction", CLUSTER: "clustering", BUCKET_RESCALE: "resize" };
const PLANNED = { compaction: "compaction", logcompaction: "log compaction", clustering: "clustering" };

const UNREAD = "not read yet";

export function laneOf(one) {
  if (REWRITES[one.operation]) return { name: REWRITES[one.operation], service: true };
  if (PLANNED[one.action]) return { name: PLANNED[one.action], service: true };
  if (!WRITES.has(one.action)) return { name: one.action, service: true };
  if (one.state === "completed") return { name: one.known ? one.writer || "no name" : UNREAD, service: false };
  return { name: one.state === "taken back" ? "taken back" : "under way", service: false };
}

export class Timeline {
  constructor({ chosen }) {
    this.chosen = chosen; this.items = []; this.lanes = []; this.now = 0; this.selected = null;
    this.from = 0; this.to = 1; this.follow = true; this.fitted = false;
    this.canvas = h("canvas", { class: "bars", tabIndex: 0, role: "application", "aria-roledescription": "timeline",
      "aria-label": "Timeline of instants. Left and right: the instant before and after. Up and down: other lanes. Plus and minus: zoom. F: all. L: newest. Enter: details below." });
    this.sizer = h("div", { class: "sizer" });
    this.port = h("div", { class: "chart" }, this.canvas, this.sizer);
    this.hint = h("div", { class: "hint", hidden: true });
    this.element = h("div", { class: "chart-frame" }, this.port, this.hint);
    this.context = this.canvas.getContext("2d");
    this.frames = 0;
    new ResizeObserver(() => this.draw()).observe(this.port);
    this.port.addEventListener("scroll", () => this.draw(), { passive: true });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.#pointers();
    this.recoloured = () => { this.colours = null; this.draw(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", this.recoloured);
    document.addEventListener("recoloured", this.recoloured);
  }

  // -- what is shown ------------------------------------------------------------------------------

  set(items, now) {
    this.items = items; this.now = now;
    const lanes = new Map();
    for (const one of items) {
      one.start ??= ms(one.requested);
      one.lane = laneOf(one);
      const key = (one.lane.service ? "2" : "1") + one.lane.name;
      if (!lanes.has(key)) lanes.set(key, { key, name: one.lane.name, service: one.lane.service, items: [] });
      lanes.get(key).items.push(one);
    }
    this.lanes = [...lanes.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    this.above = this.gutter ? 0 : 14;  // where names have no room beside the bars, they stand above them
    let y = PAD, hue = 0;
    for (const lane of this.lanes) {
      lane.plain = lane.service || lane.name === UNREAD;
      lane.hue = lane.plain ? -1 : hue++ % HUES;
      lane.items.sort((a, b) => a.start - b.start);
      const ends = [];
      lane.rows = [];
      for (const one of lane.items) {
        const end = this.#end(one);
        let row = ends.findIndex((e) => e <= one.start);
        if (row < 0) row = ends.length < MOST_ROWS ? ends.length : MOST_ROWS - 1;
        ends[row] = end;
        one.row = row;
        (lane.rows[row] ||= []).push(one);
      }
      lane.top = y + this.above;
      lane.height = Math.max(1, lane.rows.length) * ROW + PAD;
      y += this.above + lane.height + 4;
    }
    this.height = Math.max(y, 60);
    this.range = items.length
      ? [items.reduce((a, one) => Math.min(a, one.start), Infinity), items.reduce((a, one) => Math.max(a, this.#end(one)), -Infinity)] : [now - 60e3, now];
    if (this.selected) this.selected = items.find((one) => one.id === this.selected.id) || null;
    if (!this.fitted || !this.touched) this.fit();
    else if (this.follow) { const wide = this.to - this.from; this.to = this.#edge(); this.from = this.to - wide; }
    this.draw();
  }

  // Time has passed, and nothing else.
  tick(now) {
    if (this.items.some((one) => one.state === "requested" || one.state === "inflight")) { this.set(this.items, now); return; }
    this.now = now;
    this.draw();
  }

  #end(one) {
    if (one.completion) return Math.max(ms(one.completion), one.start);
    return one.state === "taken back" ? one.start : Math.max(this.now, one.start);
  }

  #edge() {
    const newest = this.range[1];
    const live = this.now - newest < 10 * 60e3 ? Math.max(this.now, newest) : newest;
    return live + Math.max(20, (this.to - this.from) * 0.02);
  }

  fit() {
    const [a, b] = this.range || [this.now - 60e3, this.now];
    const pad = Math.max(50, (b - a) * 0.02);
    this.from = a - pad; this.to = b + pad; this.follow = true; this.fitted = Boolean(this.items.length);
    this.draw();
  }

  newest() {
    const wide = Math.min(this.to - this.from, 60e3);
    this.follow = true; this.touched = true; this.to = this.range[1] + wide * 0.04; this.from = this.to - wide;
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const wide = Math.min(Math.max((this.to - this.from) * factor, 20), 20 * 365 * 864e5);
    const part = (at - this.from) / (this.to - this.from);
    this.from = at - wide * part; this.to = this.from + wide; this.follow = false; this.touched = true;
    this.draw();
  }

  pan(by) { this.from += by; this.to += by; this.follow = false; this.touched = true; this.draw(); }

  select(one, { show = true, tell = true } = {}) {
    this.selected = one;
    if (one && show) this.#show(one);
    this.draw();
    if (one) say(describe(one));
    if (tell) this.chosen(one);
  }

  #show(one) {
    const wide = this.to - this.from, end = this.#end(one);
    if (one.start < this.from || end > this.to) {
      const centre = (one.start + end) / 2;
      this.from = centre - wide / 2; this.to = centre + wide / 2; this.follow = false; this.touched = true;
    }
    const lane = this.lanes.find((l) => l.items.includes(one));
    if (!lane) return;
    const y = lane.top + one.row * ROW, seen = this.port.clientHeight - AXIS;
    if (y < this.port.scrollTop) this.port.scrollTop = Math.max(0, y - PAD);
    else if (y + ROW > this.port.scrollTop + seen) this.port.scrollTop = y + ROW + PAD - seen;
  }

  // -- drawing ------------------------------------------------------------------------------------

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.#paint(); });
  }

  get gutter() { return this.port.clientWidth < 560 ? 0 : GUTTER; }

  #x(at) { return this.gutter + ((at - this.from) / (this.to - this.from)) * (this.width - this.gutter); }
  #at(x) { return this.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.to - this.from); }

  #colours() {
    if (this.colours) return this.colours;
    const style = getComputedStyle(document.documentElement);
    const of = (one) => style.getPropertyValue(one).trim();
    this.colours = { hues: Array.from({ length: HUES }, (_, n) => of(`--hue-${n}`)), service: of("--service"), ink: of("--ink"), muted: of("--muted"),
      line: of("--line"), bad: of("--bad"), surface: of("--surface"), accent: of("--accent"), band: of("--band"), font: of("--sans") };
    return this.colours;
  }

  #paint() {
    const width = this.port.clientWidth, whole = this.height + AXIS, height = Math.min(whole, 560, Math.max(160, innerHeight * 0.58));
    if (!width || !this.canvas.isConnected || !this.height) return;
    if (Boolean(this.gutter) === Boolean(this.above)) { this.set(this.items, this.now); return; }
    const began = performance.now();
    const scale = devicePixelRatio || 1;
    if (this.width !== width || this.tall !== height || this.scale !== scale) {
      Object.assign(this, { width, tall: height, scale });
      this.port.style.height = `${height}px`;
      this.canvas.width = Math.round(width * scale); this.canvas.height = Math.round(height * scale);
      this.canvas.style.width = `${width}px`; this.canvas.style.height = `${height}px`;
    }
    if (this.whole !== whole || this.sized !== height) { this.whole = whole; this.sized = height; this.sizer.style.height = `${Math.max(0, whole - height)}px`; }
    const c = this.context, colours = this.#colours(), top = this.port.scrollTop, seen = height - AXIS;
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    c.font = `11px ${colours.font}`;
    c.textBaseline = "middle";
    this.#axis(c, colours, seen);
    c.save();
    c.beginPath(); c.rect(0, 0, width, seen); c.clip();
    const chosen = this.selected;
    const band = chosen ? [chosen.start, this.#end(chosen)] : null;
    if (band) {
      c.fillStyle = colours.band;
      const x = this.#x(band[0]);
      c.fillRect(x, 0, Math.max(2, this.#x(band[1]) - x), seen);
    }
    for (const lane of this.lanes) {
      const y = lane.top - top;
      if (y > seen || y + lane.height < 0) continue;
      c.strokeStyle = colours.line; c.lineWidth = 1;
      c.beginPath(); c.moveTo(0, Math.round(y + lane.height) + 0.5); c.lineTo(width, Math.round(y + lane.height) + 0.5); c.stroke();
      lane.rows.forEach((row, n) => this.#row(c, colours, lane, row, y + n * ROW, band));
      this.#label(c, colours, lane, y);
    }
    if (this.now >= this.from && this.now <= this.to) {
      c.strokeStyle = colours.accent; c.setLineDash([3, 3]);
      const x = Math.round(this.#x(this.now)) + 0.5;
      c.beginPath(); c.moveTo(x, 0); c.lineTo(x, seen); c.stroke(); c.setLineDash([]);
    }
    c.restore();
    if (document.activeElement === this.canvas && this.canvas.matches(":focus-visible")) {
      c.strokeStyle = colours.accent; c.lineWidth = 2; c.strokeRect(1, 1, width - 2, height - 2);
    }
    this.frames += 1; this.lastPaint = performance.now() - began;
  }

  #axis(c, colours, seen) {
    const room = this.width - this.gutter;
    const { step, at } = ticks(this.from, this.to, Math.max(2, room / 90));
    c.strokeStyle = colours.line; c.fillStyle = colours.muted; c.lineWidth = 1; c.textAlign = "center";
    let before = "";
    for (const one of at) {
      const x = Math.round(this.#x(one)) + 0.5;
      if (x < this.gutter) continue;
      c.beginPath(); c.moveTo(x, 0); c.lineTo(x, seen + 4); c.stroke();
      const text = tickText(one, step);
      if (x - this.gutter > 22 && x < this.width - 22) c.fillText(text, x, seen + 15);
      before = text;
    }
    if (this.gutter && before) {
      c.textAlign = "left";
      c.fillText(day(this.from), 10, seen + 15);
    }
  }

  #label(c, colours, lane, y) {
    c.textAlign = "left";
    const text = short(lane.name, this.gutter ? 21 : 28);
    const count = lane.items.length;
    if (this.gutter) {
      c.fillStyle = colours.surface;
      c.fillRect(0, y - PAD / 2 + 1, this.gutter - 1, lane.height);
      c.fillStyle = lane.plain ? colours.service : colours.hues[lane.hue];
      c.fillRect(0, y - 3, 4, lane.height - PAD + 2);
      c.fillStyle = colours.ink; c.fillText(text, 10, y + ROW / 2 - 1);
      if (lane.rows.length > 1) { c.fillStyle = colours.muted; c.fillText(`${number(count)}, ${lane.rows.length} at once`, 10, y + ROW * 1.5); }
    } else {
      const wide = c.measureText(text).width;
      c.fillStyle = lane.plain ? colours.service : colours.hues[lane.hue]; c.fillRect(6, y - 12, 7, 7);
      c.fillStyle = colours.surface; c.globalAlpha = 0.85; c.fillRect(16, y - 15, wide + 4, 13); c.globalAlpha = 1;
      c.fillStyle = colours.ink; c.fillText(text, 18, y - 8);
    }
  }

  // Bars in order of their start; what would fall on the pixel of the bar before is not drawn again.
  #row(c, colours, lane, row, y, band) {
    const first = lowest(row, this.from);
    const colour = lane.plain ? colours.service : colours.hues[lane.hue];
    let filled = -Infinity;
    for (let n = first; n < row.length; n += 1) {
      const one = row[n];
      if (one.start > this.to) break;
      const end = this.#end(one);
      const x = Math.max(this.#x(one.start), this.gutter - 20), right = Math.min(this.#x(end), this.width + 20);
      if (right < this.gutter) continue;
      const wide = Math.max(2.5, right - x);
      const special = one.damage || one.state !== "completed" || one === this.selected;
      if (x + wide <= filled + 0.75 && !special) continue;
      filled = Math.max(filled, x + wide);
      const dim = band && one !== this.selected && (one.start >= band[1] || end <= band[0]);
      c.globalAlpha = dim ? 0.4 : 1;
      if (one.state === "completed") {
        c.fillStyle = one.damage ? colours.bad : colour;
        c.fillRect(x, y, wide, BAR);
        if (wide > 5) { c.fillStyle = colours.surface; c.globalAlpha *= 0.75; c.fillRect(x + wide - 1, y, 1, BAR); }
      } else if (one.state === "taken back") {
        c.strokeStyle = colours.bad; c.lineWidth = 1.5;
        c.beginPath(); c.moveTo(x, y + 1); c.lineTo(x + 7, y + 8); c.moveTo(x + 7, y + 1); c.lineTo(x, y + 8); c.stroke();
      } else {
        c.strokeStyle = colour; c.lineWidth = 1.25; c.setLineDash(one.state === "requested" ? [2, 2] : []);
        c.strokeRect(x + 0.5, y + 0.5, Math.max(3, wide - 1), BAR - 1); c.setLineDash([]);
      }
      c.globalAlpha = 1;
      if (one === this.selected) { c.strokeStyle = colours.ink; c.lineWidth = 1.5; c.strokeRect(x - 1.5, y - 1.5, wide + 3, BAR + 3); }
    }
  }

  // -- by hand ------------------------------------------------------------------------------------

  found(x, y) {
    const tall = y + this.port.scrollTop;
    const lane = this.lanes.find((l) => tall >= l.top - 3 && tall < l.top + l.height);
    if (!lane) return null;
    const row = lane.rows[Math.max(0, Math.min(lane.rows.length - 1, Math.floor((tall - lane.top) / ROW)))];
    let best = null, near = 7;
    for (const one of row || []) {
      const a = this.#x(one.start), b = Math.max(a + 2.5, this.#x(this.#end(one)));
      const away = x < a ? a - x : x > b ? x - b : 0;
      if (away < near) { near = away; best = one; }
      if (a > x + 8) break;
    }
    return best;
  }

  #wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), this.#at(event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan(((event.deltaX || event.deltaY) / (this.width - this.gutter)) * (this.to - this.from));
    }
  }

  #pointers() {
    const held = new Map();
    let moved = 0, apart = 0;
    this.canvas.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event.offsetX); moved = 0; apart = 0; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) { this.#hover(event); return; }
      const before = held.get(event.pointerId);
      held.set(event.pointerId, event.offsetX);
      if (held.size === 2) {
        const [a, b] = [...held.values()], now = Math.abs(a - b) || 1;
        if (apart) this.zoom(apart / now, this.#at((a + b) / 2));
        apart = now; moved = 99;
      } else {
        moved += Math.abs(event.offsetX - before);
        if (moved > 4) this.pan(((before - event.offsetX) / (this.width - this.gutter)) * (this.to - this.from));
      }
    });
    const up = (event) => {
      if (held.delete(event.pointerId) && moved <= 4 && event.type === "pointerup") this.select(this.found(event.offsetX, event.offsetY), { show: false });
    };
    this.canvas.addEventListener("pointerup", up);
    this.canvas.addEventListener("pointercancel", up);
    this.canvas.addEventListener("pointerleave", () => { this.hint.hidden = true; });
  }

  #hover(event) {
    if (event.pointerType === "touch") return;
    const one = this.found(event.offsetX, event.offsetY);
    this.hint.hidden = !one;
    this.canvas.style.cursor = one ? "pointer" : "grab";
    if (!one) return;
    this.hint.textContent = describe(one);
    const x = Math.min(event.offsetX + 12, this.width - this.hint.offsetWidth - 6);
    this.hint.style.transform = `translate(${Math.max(4, x)}px, ${event.offsetY + 16}px)`;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key, chosen = this.selected;
    const lane = this.lanes.find((l) => l.items.includes(chosen)) || this.lanes[0];
    const act = {
      "+": () => this.zoom(0.6, chosen ? chosen.start : undefined), "=": () => this.zoom(0.6, chosen ? chosen.start : undefined),
      "-": () => this.zoom(1.6, chosen ? chosen.start : undefined), f: () => this.fit(), l: () => this.newest(),
      Escape: () => this.select(null),
      ArrowLeft: () => this.#step(lane, -1), ArrowRight: () => this.#step(lane, 1),
      ArrowUp: () => this.#other(lane, -1), ArrowDown: () => this.#other(lane, 1),
      Home: () => this.select(lane && lane.items[0]), End: () => this.select(lane && lane.items[lane.items.length - 1]),
      Enter: () => { const details = document.getElementById("instant"); if (chosen && details) details.focus(); },
    }[key];
    if (act) { event.preventDefault(); act(); }
  }

  #step(lane, by) {
    if (!lane || !lane.items.length) return;
    const at = lane.items.indexOf(this.selected);
    const to = at < 0 ? (by > 0 ? 0 : lane.items.length - 1) : at + by;
    this.select(lane.items[Math.max(0, Math.min(lane.items.length - 1, to))]);
  }

  #other(lane, by) {
    const to = this.lanes[this.lanes.indexOf(lane) + by];
    if (!to) return;
    const at = this.selected ? this.selected.start : this.from;
    this.select(to.items.reduce((a, b) => (Math.abs(b.start - at) < Math.abs(a.start - at) ? b : a)));
  }
}

function lowest(row, from) {
  let a = 0, b = row.length;
  while (a < b) { const m = (a + b) >> 1; if (row[m].start < from) a = m + 1; else b = m; }
  return Math.max(0, a - 1);  // rows hold no overlaps, so only the one before may reach in
}

export function describe(one) {
  const lasted = one.completion ? `, ${span(ms(one.completion) - one.start)}` : "";
  const by = one.writer ? ` by ${short(one.writer, 40)}` : "";
  const what = one.operation ? `${one.operation.toLowerCase().replace("_", " ")}` : one.action;
  return `${what}${by}, ${one.state}${one.damage ? ", damaged" : ""}, ${clock(one.start, true)}${lasted}${one.rows ? `, ${number(one.rows)} rows` : ""}`;
}
