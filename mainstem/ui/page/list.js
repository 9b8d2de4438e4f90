// A list of any length: only the rows in sight are in the page. Rows come from `get(i)`, undefined while they are
// fetched. By keyboard: one row is in the tab order; arrows, Page keys, Home and End move; Enter opens.
import { h, fill } from "./dom.js";

export class List {
  constructor({ label, kind, columns, get, need, open, rowHeight = 34, most = 12 }) {
    Object.assign(this, { columns, get, need, open, rowHeight, most });
    this.count = 0; this.active = 0; this.rows = new Map(); this.isOpened = () => false;
    this.head = h("div", { class: "row head", role: "row", "aria-rowindex": "1" },
      columns.map((c) => h("div", { role: "columnheader", class: c.class || "" }, c.title)));
    this.body = h("div", { class: "body", role: "rowgroup" });
    this.port = h("div", { class: "port" }, this.body);
    this.element = h("div", { class: `list list-${kind}`, role: "grid", "aria-label": label, "aria-readonly": "true" },
      h("div", { role: "rowgroup" }, this.head), this.port);
    this.port.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) { this.active = Number(row.dataset.at); this.#choose(); this.refresh(); }
    });
    new ResizeObserver(() => this.#soon()).observe(this.port);
  }

  setCount(count) {
    this.count = count;
    this.told = true;
    this.active = Math.max(0, Math.min(this.active, count - 1));
    this.element.setAttribute("aria-rowcount", String(count + 1));
    this.body.style.height = `${count * this.rowHeight}px`;
    this.port.style.height = `${Math.max(1, Math.min(count, this.most)) * this.rowHeight}px`;
    this.refresh();
  }

  refresh() { this.rows.clear(); this.#draw(); }

  reveal(at) {
    this.active = at;
    const top = at * this.rowHeight;
    const seen = this.port.clientHeight;
    if (top < this.port.scrollTop) this.port.scrollTop = top;
    else if (top + this.rowHeight > this.port.scrollTop + seen) this.port.scrollTop = top + this.rowHeight - seen;
    this.refresh();
  }

  #soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.#draw(); });
  }

  #draw() {
    const first = Math.max(0, Math.floor(this.port.scrollTop / this.rowHeight) - 4);
    const last = Math.min(this.count, Math.ceil((this.port.scrollTop + (this.port.clientHeight || 400)) / this.rowHeight) + 4);
    this.head.style.paddingRight = `${12 + this.port.offsetWidth - this.port.clientWidth}px`;  // as wide as the rows
    if (this.need) this.need(first, last);
    const held = this.body.contains(document.activeElement);
    const wanted = [];
    for (let at = first; at < last; at += 1) {
      const item = this.get(at);
      let row = this.rows.get(at);
      if (!row || row.item !== item) {
        row = { item, element: this.#row(at, item) };
        this.rows.set(at, row);
      }
      wanted.push(row.element);
    }
    if (this.count && (this.active < first || this.active >= last)) {
      const item = this.get(this.active);
      wanted.push(this.#row(this.active, item));
    }
    for (const at of this.rows.keys()) if (at < first || at >= last) this.rows.delete(at);
    fill(this.body, wanted);
    if (!this.count) fill(this.body, h("div", { class: "empty" }, this.told ? "Nothing here." : "Reading…"));
    if (held) this.#focus();
  }

  #row(at, item) {
    const made = h("div", {
      class: `row${item && this.isOpened(item) ? " opened" : ""}`, role: "row", "aria-rowindex": String(at + 2),
      tabindex: at === this.active ? "0" : "-1",
    }, item ? this.columns.map((c) => h("div", { role: "gridcell", class: c.class || "" }, c.of(item)))
      : h("div", { role: "gridcell", class: "wait" }, "…"));
    made.dataset.at = at;
    made.style.transform = `translateY(${at * this.rowHeight}px)`;
    if (item && this.isOpened(item)) made.setAttribute("aria-selected", "true");
    return made;
  }

  #focus() {
    const row = this.body.querySelector(`[data-at="${this.active}"]`);
    if (row) row.focus({ preventScroll: true });
  }

  #choose() {
    const item = this.get(this.active);
    if (item && this.open) this.open(item, this.active);
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.port.clientHeight / this.rowHeight) - 1);
    const to = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page,
      Home: 0, End: this.count - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.#choose(); this.refresh(); return; }
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.reveal(Math.max(0, Math.min(this.count - 1, to)));
    this.#focus();
  }
}

// Rows of the server, by pages: `fetchPage(offset, limit)` gives {count, rows}.
export class Pages {
  constructor(fetchPage, { size = 100, failed } = {}) {
    Object.assign(this, { fetchPage, size, failed });
    this.pages = new Map(); this.turn = 0;
  }

  attach(list) { this.list = list; list.get = (at) => this.get(at); list.need = (a, b) => this.need(a, b); }

  get(at) {
    const page = this.pages.get(Math.floor(at / this.size));
    return Array.isArray(page) ? page[at % this.size] : undefined;
  }

  need(first, last) {
    for (let page = Math.floor(first / this.size); page * this.size < last; page += 1) this.#load(page);
  }

  async reset() {
    this.turn += 1;
    this.pages.clear();
    await this.#load(0);
  }

  async #load(page) {
    if (this.pages.has(page)) return;
    const turn = this.turn;
    this.pages.set(page, "asked");
    try {
      const told = await this.fetchPage(page * this.size, this.size);
      if (turn !== this.turn) return;
      this.pages.set(page, told.rows);
      if (this.pages.size > 40) for (const old of this.pages.keys()) if (Math.abs(old - page) > 15) this.pages.delete(old);
      if (told.count !== this.list.count || page === 0) this.list.setCount(told.count); else this.list.refresh();
    } catch (error) {
      if (turn === this.turn) { this.pages.delete(page); this.failed(error); }
    }
  }
}
