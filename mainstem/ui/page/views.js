// What each section shows. A view gets {table, place, live} and fills `place`; it returns how it is refreshed, if it is.
import { ask } from "./api.js";
import { h, fill, name, code, shown, short, number, bytes, plural, facts, badge, notice, say, link } from "./dom.js";
import { List, Pages } from "./list.js";
import { sliceChart } from "./slices.js";
import { Timeline, laneOf } from "./timeline.js";
import { ms, moment, span, clock } from "./times.js";

const heading = (text, ...end) => h("div", { class: "title" }, h("h2", {}, text), ...end);
const panel = (...children) => h("section", { class: "panel" }, ...children);
const table = (heads, rows, empty = "Nothing here.") => rows.length
  ? h("div", { class: "scroll" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, heads.map((one) => h("th", { scope: "col", class: one.num ? "num" : "" }, one.title || one)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, n) => h("td", { class: heads[n].num ? "num" : "" }, cell)))))))
  : h("p", { class: "muted" }, empty);
const num = (title) => ({ title, num: true });
const write = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export function failing(place, error) { fill(place, panel(notice(error))); }

// -- all tables ------------------------------------------------------------------------------------

export async function tables({ place }) {
  const told = await ask("tables");
  const cards = told.tables.map((one) => ({ one, element: h("a", { class: "card", href: link("t", one.id, "overview") }, h("h2", {}, name(one.name)), h("p", { class: "small muted" }, code(one.path)), h("div", {}, "…")) }));
  fill(place, h("div", { class: "title" }, h("h1", {}, "Tables"), h("span", { class: "muted" }, plural(told.tables.length, "table"))),
    told.troubles.map((text) => h("div", { class: "notice mild" }, shown(text))), h("div", { class: "cards" }, cards.map((c) => c.element)));
  const watch = new IntersectionObserver((seen) => {
    for (const entry of seen) if (entry.isIntersecting) { watch.unobserve(entry.target); describe(cards.find((c) => c.element === entry.target)); }
  });
  for (const card of cards) watch.observe(card.element);
  async function describe({ one, element }) {
    let card;
    try { card = await ask(`tables/${one.id}/card`); } catch (error) { card = { trouble: error.message }; }
    element.lastChild.replaceWith(card.trouble ? h("p", { class: "notice" }, short(card.trouble, 400)) : facts([
      ["Type", card.type === "MERGE_ON_READ" ? "merge on read" : "copy on write"], ["Version", String(card.version)],
      ["Key", shown(card.keys.join(", ") || "–")], ["Partitions by", shown(card.partitions.join(", ") || "–")],
      ["Instants", `${number(card.instants)}${card.pending ? `, ${card.pending} under way` : ""}`],
      ["Newest commit", card.newest ? `${span(ms(card.now) - ms(card.newest))} ago` : "none"],
    ]));
  }
}

// -- overview --------------------------------------------------------------------------------------

export async function overview({ table: id, place }) {
  const inner = h("div", { class: "stack" });
  fill(place, inner);
  async function refresh() {
    const told = await ask(`tables/${id}`);
    if (told.trouble) { fill(inner, panel(notice({ message: told.trouble }))); return; }
    const act = told.activity;
    fill(inner, h("div", {}, h("h1", {}, name(told.table || told.name)), h("p", { class: "muted" }, code(told.path))),
      told.troubles.map((text) => notice({ message: text })),
      panel(facts([
        ["Type", told.type === "MERGE_ON_READ" ? "merge on read" : "copy on write"], ["Table version", String(told.version)],
        ["Record key", shown(told.keys.join(", ") || "–")], ["Partitioned by", shown(told.partitions.join(", ") || "not partitioned")],
        ["Active instants", number(told.instants)], ["Under way", number(told.pending)],
        ["Newest commit", told.newest ? `${span(ms(told.now) - ms(told.newest))} ago` : "none"],
      ])),
      act ? h("div", { class: "columns" }, h("div", { class: "stack" },
        panel(heading("Writers", h("span", { class: "end muted small" }, `last ${span(act.window_s * 1000)}`)),
          table(["Writer", "Action", num("Commits"), num("Rows"), num("Data"), num("Last")], act.writers.map((w) => [
            w.writer ? name(w.writer) : h("span", { class: "muted" }, "no name"), w.action, number(w.commits), number(w.rows), bytes(w.bytes), `${span(w.last_s * 1000)} ago`]), "Nobody wrote meanwhile.")),
        panel(heading("Under way"),
          table(["Instant", "Action", "State", num("Since"), ""], act.pending.map((w) => [
            code(w.instant), w.action, w.state, span(w.since_s * 1000), w.alive ? badge("alive", "good") : badge("nobody at it", "bad")]), "Nothing is pending.")),
        act.lock ? panel(heading("Lock", h("span", { class: "end" }, act.lock.holder === null ? badge("not told") : badge(act.lock.holder ? "held" : "free", act.lock.holder ? "warning" : "good"))),
          facts([["Which", code(act.lock.lock)], act.lock.holder ? ["Held by", shown(act.lock.holder)] : null, act.lock.since_s === null ? null : ["Asked for it", `${span(act.lock.since_s * 1000)} ago`],
            act.lock.waiting ? ["Waiting", act.lock.waiting.length ? act.lock.waiting.map((one) => h("div", {}, shown(one))) : "nobody"] : null], "wide"),
          act.lock.holder === null ? h("p", { class: "muted small" }, "Its own service tells who holds it.") : null) : null,
        panel(heading("Columns"), table(["Column", "Type"], told.schema.slice(0, 500).map((c) => [name(c.name), code(c.type)])))),
        panel(heading("Due"), act.due.length ? act.due.map(finding) : h("p", { class: "muted" }, "No table service is due."))) : null);
  }
  await refresh();
  return { refresh, every: 3000 };
}

function finding(one) {
  const shownBy = Object.entries(one.evidence || {});
  return h("article", { class: `finding ${one.severity}` },
    h("div", {}, badge(one.severity, one.severity), " ", h("strong", {}, shown(one.check))),
    h("p", {}, shown(one.text)),
    shownBy.length ? h("p", { class: "small muted" }, shownBy.map(([key, value], n) => [n ? " · " : "", shown(key), " ", code(short(write(value), 300))])) : null,
    one.command ? h("div", { class: "do" }, code(one.command), h("button", { type: "button", onclick: (event) => copied(event.target, one.command) }, "Copy")) : null);
}

async function copied(button, text) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select it by hand"; }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

// -- timeline --------------------------------------------------------------------------------------

const stores = new Map();  // table -> its instants, kept while the page is open

export function instantStore(id) {
  if (!stores.has(id)) stores.set(id, { view: "", since: 0, by: new Map(), now: 0, trouble: "" });
  return stores.get(id);
}

// Takes over what changed; whether anything did.
export async function follow(id) {
  const store = instantStore(id);
  const told = await ask(`tables/${id}/timeline`, { view: store.view, since: store.since });
  if (told.view !== store.view) { store.by = new Map(); store.view = told.view; }
  const at = Object.fromEntries(told.columns.map((one, n) => [one, n]));
  for (const row of told.rows) {
    const one = Object.fromEntries(told.columns.map((column) => [column, row[at[column]]]));
    one.action_of = { compaction: "commit", logcompaction: "deltacommit", clustering: "replacecommit" }[one.action] || one.action;
    one.id = `${one.requested}.${one.action_of}`;
    store.by.set(one.id, one);
  }
  Object.assign(store, { since: told.since, now: ms(told.now), trouble: told.trouble, more: told.more, all: told.count });
  return told.rows.length > 0;
}

export async function timeline({ table: id, place, at, go }) {
  let items = [], text = "";
  const details = h("section", { class: "panel", id: "instant", tabIndex: -1, "aria-label": "Chosen instant", hidden: true });
  const chart = new Timeline({ chosen: (one) => { tell(one); list.refresh(); } });
  const trouble = h("div", {}), count = h("span", { class: "muted small end" });
  const search = h("input", { type: "search", placeholder: "writer, action, operation or instant", oninput: () => { text = search.value.trim().toLowerCase(); show(); } });
  const list = new List({
    label: "Instants, the newest first", kind: "instants", most: 11,
    columns: [
      { title: "Requested", of: (one) => code(`${clock(one.start ?? ms(one.requested), true)}`) },
      { title: "Took", class: "p1", of: (one) => (one.completion ? span(ms(one.completion) - ms(one.requested)) : "–") },
      { title: "Action", class: "p1", of: (one) => shown(one.operation ? one.operation.toLowerCase() : one.action) },
      { title: "Writer", of: (one) => (one.writer ? name(one.writer) : h("span", { class: "muted" }, laneOf(one).name)) },
      { title: "Rows", class: "num p2", of: (one) => number(one.rows) },
      { title: "Groups", class: "num p2", of: (one) => number(one.file_groups) },
      { title: "Data", class: "num p3", of: (one) => bytes(one.bytes) },
      { title: "State", of: (one) => (one.damage ? badge("damaged", "bad") : one.state === "completed" ? (one.archived ? badge("archived") : badge("done", "good")) : badge(one.state, one.state === "taken back" ? "bad" : "warning")) },
    ],
    get: (n) => items[n], open: (one) => { chart.select(one); },
  });
  list.isOpened = (one) => chart.selected && one.id === chart.selected.id;
  const button = (label, act, title) => h("button", { type: "button", title, onclick: act }, label);
  fill(place, panel(
    heading("Timeline", count),
    h("div", { class: "tools" }, h("label", { class: "wide" }, "Show", search),
      button("All", () => chart.fit(), "F"), button("Newest", () => chart.newest(), "L"), button("+", () => chart.zoom(0.6), "Zoom in"), button("−", () => chart.zoom(1.6), "Zoom out")),
    trouble, chart.element,
    h("div", { class: "legend", "aria-label": "Legend" },
      h("span", {}, h("i", { class: "done" }), "requested to completed"), h("span", {}, h("i", { class: "open" }), "under way"), h("span", {}, h("i", { class: "served" }), "table service"),
      h("span", {}, h("i", { class: "back" }), "taken back"), h("span", {}, h("i", { class: "torn" }), "damaged"), h("span", {}, "Drag to move, Ctrl and wheel to zoom."))),
    details, panel(heading("Instants"), list.element));

  function show(keep) {
    const store = instantStore(id);
    items = [...store.by.values()];
    if (text) items = items.filter((one) => `${one.requested} ${one.completion || ""} ${one.action} ${one.operation} ${one.writer} ${one.state}`.toLowerCase().includes(text));
    if (!keep && text) chart.fitted = false;
    chart.set(items, store.now);
    items.sort((a, b) => b.start - a.start);
    list.setCount(items.length);
    const open = items.filter((one) => one.state === "requested" || one.state === "inflight").length;
    count.textContent = `${plural(items.length, "instant")}${open ? `, ${open} under way` : ""}${store.more ? ", reading…" : ""}`;
    fill(trouble, store.trouble ? notice({ message: store.trouble }) : null);
  }

  async function tell(one) {
    details.hidden = !one;
    go(one ? ["t", id, "timeline", one.id] : ["t", id, "timeline"]);
    if (!one) return;
    let told;
    try { told = await ask(`tables/${id}/instant`, { requested: one.requested, action: one.action_of }); } catch (error) { fill(details, notice(error)); return; }
    const extra = Object.entries(told.extra_metadata || {});
    fill(details, heading(`${shown(told.operation || told.action)} `, told.writer ? name(told.writer) : null, h("span", { class: "end" }, badge(told.state, told.state === "completed" ? "good" : "bad"))),
      told.damage ? notice({ told: { kind: "CorruptTable", message: told.damage } }) : null,
      facts([["Requested", code(told.requested)], ["Completed", code(told.completion || "–")], ["Took", told.completion ? span(ms(told.completion) - ms(told.requested)) : "–"],
        ["Rows", number(told.rows)], ["Inserts", number(told.inserts)], ["Updates", number(told.updates)], ["Deletes", number(told.deletes)], ["Data", bytes(told.bytes)],
        ["File groups", number(told.file_groups)], ["Files", number(told.files)], told.replaced ? ["Replaced groups", number(told.replaced)] : null,
        ["Open at the same time", plural(told.beside.open, "other instant")], ["… in one of its partitions", number(told.beside.same_partitions)]]),
      told.took_back && told.took_back.length ? h("p", {}, "Took back ", told.took_back.slice(0, 50).map((t) => [code(t), " "])) : null,
      told.partitions.length ? h("p", { class: "small" }, h("span", { class: "muted" }, "Partitions "), told.partitions.slice(0, 60).map((p, n) => [n ? ", " : "", name(short(p, 80) || "(none)")])) : null,
      extra.length ? facts(extra.slice(0, 40).map(([key, value]) => [shown(key), code(short(value, 2000))])) : null);
  }

  async function refresh() {
    const changed = await follow(id);
    if (changed) show(true); else chart.tick(instantStore(id).now);
    const store = instantStore(id);
    if (at && !chart.selected) {
      const one = store.by.get(at);
      if (one) { at = null; chart.select(one); }
    }
    return store.more || store.by.size < store.all;
  }
  count.textContent = "reading…";
  if (instantStore(id).by.size) show(true);
  await refresh();
  if (!instantStore(id).by.size) show(true);
  place.chart = chart;
  return { refresh, every: 1500 };
}

// -- files -----------------------------------------------------------------------------------------

const PARTS = [["base", "base_bytes", "base files"], ["log", "log_bytes", "log files to merge"], ["older", "older_bytes", "older slices"], ["replaced", "replaced_bytes", "replaced"], ["pending", "pending_bytes", "pending"], ["unused", "unused_bytes", "unused"]];

function stacked(sums, most, tall) {
  const whole = Math.max(1, most || PARTS.reduce((all, [, key]) => all + sums[key], 0));
  return h("div", { class: `bar${tall ? " tall" : ""}`, role: "img", "aria-label": PARTS.filter(([, key]) => sums[key]).map(([, key, label]) => `${label} ${bytes(sums[key])}`).join(", ") || "empty" },
    PARTS.map(([kind, key]) => { const part = h("i", { class: kind }); part.style.width = `${(100 * sums[key]) / whole}%`; return part; }));
}

export async function files({ table: id, place, go, at, more }) {
  let partition = null, most = 1;
  const sums = panel(), troubles = h("div"), detail = h("section", { class: "panel", id: "group", tabIndex: -1, "aria-label": "Chosen file group", hidden: true });
  const failed = (error) => fill(troubles, notice(error));
  const searchPartitions = h("input", { type: "search", oninput: () => later(() => pagesP.reset()) });
  const sortPartitions = choice([["partition", "name"], ["-bytes", "size"], ["-log_bytes", "logs to merge"], ["-older_bytes", "older slices"], ["-newest", "newest write"]], () => pagesP.reset());
  const searchGroups = h("input", { type: "search", oninput: () => later(() => pagesG.reset()) });
  const sortGroups = choice([["partition", "partition"], ["-bytes", "size"], ["-log_bytes", "logs to merge"], ["-slices", "slices"], ["-newest", "newest write"]], () => pagesG.reset());
  const which = h("span", { class: "muted" });
  const all = h("button", { type: "button", hidden: true, onclick: () => choose(null) }, "All partitions");
  const pagesP = new Pages(async (offset, limit) => {
    const told = await ask(`tables/${id}/partitions`, { offset, limit, search: searchPartitions.value, sort: sortPartitions.value });
    total(told.totals);
    for (const one of told.rows) most = Math.max(most, one.bytes);
    return told;
  }, { failed });
  const pagesG = new Pages((offset, limit) => ask(`tables/${id}/groups`, { offset, limit, partition, search: searchGroups.value, sort: sortGroups.value }), { failed });
  const listP = new List({ label: "Partitions", kind: "partitions", most: 7, columns: [
    { title: "Partition", of: (p) => name(short(p.partition, 200) || "(the table)") }, { title: "Groups", class: "num", of: (p) => number(p.groups) }, { title: "Files", class: "num p2", of: (p) => number(p.files) },
    { title: "Size", class: "num", of: (p) => bytes(p.bytes) }, { title: "Logs", class: "num p2", of: (p) => bytes(p.log_bytes) }, { title: "Older", class: "num p2", of: (p) => bytes(p.older_bytes + p.replaced_bytes) },
    { title: "", class: "p1", of: (p) => stacked(p, most) }], open: (p) => choose(p.partition), get: () => undefined });
  const listG = new List({ label: "File groups", kind: "groups", most: 10, columns: [
    { title: "Partition", of: (g) => name(short(g.partition, 120) || "(the table)") }, { title: "File group", of: (g) => code(g.file_id) }, { title: "Slices", class: "num p2", of: (g) => number(g.slices) },
    { title: "Size", class: "num", of: (g) => bytes(g.bytes) }, { title: "Logs", class: "num p2", of: (g) => `${number(g.log_files)} files` }, { title: "Newest", class: "p2", of: (g) => (g.newest ? clock(ms(g.newest)) : "–") },
    { title: "", class: "p2", of: (g) => stacked(g, 0) }], open: (g) => { go(["t", id, "files", g.partition, g.file_id]); tell(g.partition, g.file_id); }, get: () => undefined });
  pagesP.attach(listP); pagesG.attach(listG);
  let chosen = null;
  listG.isOpened = (g) => chosen && g.partition === chosen[0] && g.file_id === chosen[1];
  let waiting = 0;
  const later = (act) => { clearTimeout(waiting); waiting = setTimeout(act, 200); };
  fill(place, troubles, sums,
    panel(heading("Partitions"), h("div", { class: "tools" }, h("label", { class: "wide" }, "Name contains", searchPartitions), h("label", {}, "Sorted by", sortPartitions)), listP.element),
    panel(heading("File groups", which, all), h("div", { class: "tools" }, h("label", { class: "wide" }, "Partition or file id contains", searchGroups), h("label", {}, "Sorted by", sortGroups)), listG.element),
    detail);

  function choose(one) {
    partition = one;
    fill(which, one === null ? null : ["of ", name(short(one, 80) || "(the table)")]);
    all.hidden = one === null;
    pagesG.reset();
  }

  function total(told) {
    const debts = told.older_bytes + told.replaced_bytes;
    fill(sums, heading("Storage", h("span", { class: "end muted small" }, `${plural(told.partitions, "partition")}, ${plural(told.groups, "file group")}, ${plural(told.files, "file")}`)),
      stacked(told, 0, true),
      h("div", { class: "legend" }, PARTS.filter(([, key]) => told[key]).map(([kind, key, label]) => h("span", {}, h("i", { class: `dot ${kind}` }), `${label} ${bytes(told[key])}`))),
      facts([["On storage", bytes(told.bytes)], ["A query reads", bytes(told.base_bytes + told.log_bytes)],
        ["Compaction owes", `${bytes(told.log_bytes)} in ${plural(told.log_files, "log file")}`], ["Cleaning may free", bytes(debts)], told.unused_bytes ? ["Nobody's", bytes(told.unused_bytes)] : null]));
  }

  async function tell(p, file) {
    chosen = [p, file];
    detail.hidden = false;
    let told;
    try { told = await ask(`tables/${id}/group`, { partition: p, file_id: file }); } catch (error) { fill(detail, notice(error)); return; }
    if (!told.files.length) { fill(detail, notice({ message: "This file group is gone." })); return; }
    const rows = told.files.slice(-400).reverse();
    fill(detail, heading("File slices", code(file), h("span", { class: "end muted small" }, plural(told.count, "file"))),
      sliceChart(told.files, Math.max(300, detail.clientWidth - 38)),
      h("div", { class: "legend" }, h("span", {}, h("i", { class: "dot base" }), "base file"), h("span", {}, h("i", { class: "dot log" }), "log file"), h("span", {}, "Pale: older slices, until a clean. Larger: more bytes.")),
      table(["Slice", "Kind", "State", num("Size"), "Completed", "File"], rows.map((f) => [code(f.slice || "–"), f.kind, f.state, bytes(f.size), code(f.completion || "–"), code(f.file, "long")])));
    listG.refresh();
  }

  await pagesP.reset();
  await pagesG.reset();
  if (at && more) tell(at, more);
}

function choice(options, changed) {
  return h("select", { onchange: changed }, options.map(([value, label]) => h("option", { value }, label)));
}

// -- one key ---------------------------------------------------------------------------------------

export async function key({ table: id, place, at, go }) {
  const field = h("input", { name: "key", required: true, autocomplete: "off", spellcheck: false, value: at || "" });
  const partition = h("input", { name: "partition", autocomplete: "off", placeholder: "all" });
  const asOf = h("input", { name: "as_of", autocomplete: "off", placeholder: "now" });
  const button = h("button", { class: "main", type: "submit" }, "Explain");
  const result = h("div", { class: "stack" });
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); go(["t", id, "key", field.value]); look(); } },
    h("label", { class: "wide" }, "Record key, as in _hoodie_record_key", field), h("label", {}, "Partition", partition), h("label", {}, "As of instant", asOf), button);
  fill(place, panel(heading("One row, and how it came to be"), form), result);

  async function look() {
    button.disabled = true;
    fill(result, panel(h("p", { class: "muted" }, "Looking through the file groups that may hold the key…")));
    try {
      const told = await ask(`tables/${id}/explain`, {}, { body: { key: field.value, partition: partition.value || null, as_of: asOf.value || null } });
      tell(told);
    } catch (error) { fill(result, panel(notice(error))); } finally { button.disabled = false; }
  }

  function tell(told) {
    const text = h("pre", { hidden: true }, shownLines(told.text));
    const show = h("button", { type: "button", "aria-pressed": "false", onclick: () => { text.hidden = !text.hidden; show.setAttribute("aria-pressed", String(!text.hidden)); } }, "As text");
    fill(result,
      panel(heading(told.rows.length ? "A query shows" : "A query shows no row", h("span", { class: "end" }, show)),
        told.rows.map((row) => facts(Object.entries(row).filter(([k]) => !k.startsWith("_hoodie_")).map(([k, v]) => [shown(k), code(short(write(v), 2000))]))),
        h("p", { class: "muted small" }, `Merged by ${shown(told.merge)}; ${shown(told.looked_for)}.`),
        told.troubles.map((one) => notice({ message: `Not read: ${one.path}: ${one.what}` })), text),
      panel(heading("Versions", h("span", { class: "end muted small" }, `${plural(told.versions.length, "version")}${told.omitted ? `, ${number(told.omitted)} older ones left out` : ""}`)),
        told.versions.length ? h("ol", { class: "stack versions", role: "list" }, told.versions.slice(0, 200).map(version)) : h("p", { class: "muted" }, "No version of this key is there.")),
      told.indexes.length ? panel(heading("Indexes say"), table(["Index", "What", "Entry", ""], told.indexes.map((one) => [name(one.index), shown(one.what), code(short(JSON.stringify(one.entry), 400), "long"), badge(one.agrees ? "agrees" : "differs", one.agrees ? "good" : "bad")]))) : null,
      told.changes.length ? panel(heading("Change log"), table(["Op", "Instant", "Before", "After"], told.changes.slice(0, 200).map((one) => [shown(one.op), code(one.instant), code(short(JSON.stringify(one.before), 400), "long"), code(short(JSON.stringify(one.after), 400), "long")]))) : null);
    say(`${plural(told.versions.length, "version")}`);
  }

  function version(one) {
    return h("li", { class: `version${one.wins ? " wins" : ""}` },
      h("div", { class: "title" }, h("strong", {}, `${one.number}. ${one.kind}`), one.wins ? badge("wins", "win") : null, one.read ? null : badge("not read"), h("span", { class: "muted" }, shown(one.why))),
      Object.keys(one.values).length ? facts(Object.entries(one.values).filter(([k]) => !k.startsWith("_hoodie_")).map(([k, v]) => [shown(k), code(short(write(v), 2000))])) : null,
      h("p", { class: "small muted" }, "instant ", h("a", { href: link("t", id, "timeline", `${one.instant}.deltacommit`) }, code(one.instant)), one.completion ? [" completed ", code(one.completion)] : " not completed",
        one.operation ? [", ", shown(one.operation.toLowerCase())] : "", one.writer ? [" by ", name(one.writer)] : "", Object.keys(one.ordering).length ? [", ordering ", code(JSON.stringify(one.ordering))] : ""),
      h("p", { class: "small muted" }, name(one.partition || "."), " / ", code(one.file), ` row ${one.row}`));
  }
  if (at) await look();
}

const shownLines = (text) => text.split("\n").map(shown).join("\n");

// -- query -----------------------------------------------------------------------------------------

export async function query({ table: id, place }) {
  const terms = await ask(`tables/${id}/query`);
  const sql = h("textarea", { name: "sql", spellcheck: false, rows: 4, value: drafts.get(id) ?? `select * from ${terms.name} limit 20`, oninput: () => drafts.set(id, sql.value),
    onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } } });
  const button = h("button", { class: "main", type: "submit", disabled: !terms.there }, "Run");
  const result = h("div", { class: "stack" });
  fill(place, panel(heading("Query", h("span", { class: "end muted small" }, `DuckDB; the table is `, code(terms.name), `; at most ${number(terms.rows)} rows and ${terms.seconds} s`)),
    terms.there ? null : h("div", { class: "notice mild" }, "DuckDB is not installed: pip install 'mainstem[ui]'"),
    h("form", { class: "stack", onsubmit: (event) => { event.preventDefault(); run(); } }, h("label", {}, "One SELECT", sql), h("div", { class: "tools" }, button, h("span", { class: "muted small" }, "Ctrl and Enter")))), result);

  async function run() {
    if (button.disabled) return;
    button.disabled = true;
    fill(result, panel(h("p", { class: "muted" }, "Running…")));
    const began = performance.now();
    try {
      const told = await ask(`tables/${id}/query`, {}, { body: { sql: sql.value, limit: terms.rows } });
      const heads = told.columns.map((column, n) => ({ title: h("span", { title: told.types[n] }, shown(column)), num: /INT|DOUBLE|FLOAT|DECIMAL/.test(told.types[n]) }));
      fill(result,
        panel(heading("Rows", h("span", { class: "end muted small" }, `${told.cut ? "the first " : ""}${plural(told.rows.length, "row")}, ${span(performance.now() - began)}`)),
          table(heads, told.rows.map((row) => row.map((cell) => (cell === null ? h("span", { class: "muted" }, "null") : h("bdi", { class: "cell" }, shown(cell))))), "No row.")),
        panel(heading("What was read"), told.scans.length ? told.scans.map(scan) : h("p", { class: "muted" }, "Nothing of the table.")));
      say(plural(told.rows.length, "row"));
    } catch (error) { fill(result, panel(notice(error))); } finally { button.disabled = false; }
  }

  function scan(one) {
    return h("div", { class: "stack" },
      h("p", {}, `${number(one.file_slices_read)} of ${plural(one.file_slices, "file slice")} in ${number(one.partitions_read)} of ${plural(one.partitions, "partition")}: `,
        `${plural(one.base_files_read, "base file")}, ${plural(one.log_files_read, "log file")}; columns `, code(short(one.columns.join(", "), 300))),
      one.filter ? h("p", { class: "small" }, h("span", { class: "muted" }, "filter "), code(short(one.filter, 600))) : null,
      one.cuts.length ? table(["Skipped by", "What", num("Left out"), num("Of")], one.cuts.map((cut) => [shown(cut.index), shown(cut.what), number(cut.left_out), number(cut.of)])) : h("p", { class: "muted small" }, "Nothing could be skipped."),
      one.notes.map((text) => h("p", { class: "small muted" }, shown(text))));
  }
}
const drafts = new Map();

// -- indexes, streams, properties, doctor -------------------------------------------------------------

function covers(one) {
  if (!one.coverage) return one.state === "ready" && one.kind !== "vector" ? "every commit" : "nothing yet";
  const { share, rows, slices } = one.coverage;
  const changed = Object.entries(slices).filter(([kind]) => kind !== "unchanged").map(([kind, count]) => `${count} ${kind}`);
  return h("span", { title: changed.join(", ") || "all file slices are as the index has them" }, `${Math.floor(share * 100)} % of file slices, ${rows.toLocaleString("en")} vectors`);
}

export async function indexes({ table: id, place }) {
  const [told, doctor] = await Promise.all([ask(`tables/${id}/indexes`), ask(`tables/${id}/doctor`).catch(() => ({ findings: [] }))]);
  const about = doctor.findings.filter((one) => one.check.startsWith("index") || one.check.startsWith("metadata"));
  const out = new Set(about.filter((one) => one.check !== "index").map((one) => one.evidence.index));
  fill(place, panel(heading("Indexes", h("span", { class: "end muted small" }, plural(told.indexes.length, "index").replace("indexs", "indexes"))),
    table(["Name", "Kind", "On", "State", "Covers", "Queries", "Options"], told.indexes.map((one) => [
      name(one.name), one.function && one.function !== one.kind ? `${one.kind} of ${shown(one.function)}` : shown(one.kind), one.columns.length ? one.columns.map((c, n) => [n ? ", " : "", name(c)]) : h("span", { class: "muted" }, one.kind === "files" ? "all files" : "all keys"),
      badge(one.state, one.state === "ready" ? "good" : "warning"), covers(one), one.state !== "ready" ? "not yet" : out.has(one.name) ? h("span", { class: "warn" }, "leave it out") : "use it",
      code(short(Object.entries(one.options).map(([k, v]) => `${k}=${v}`).join(" "), 300), "long")]), "The table has no index: queries skip files by partitions and buckets alone.")),
    about.length ? panel(heading("Findings"), about.map(finding)) : null);
}

export async function streams({ table: id, place }) {
  const inner = h("div", { class: "stack" });
  fill(place, inner);
  async function refresh() {
    const told = await ask(`tables/${id}/streams`);
    fill(inner, panel(heading("Streams", h("span", { class: "end muted small" }, `by their notes in commits${told.more ? ", reading…" : ""}`)),
      told.streams.length ? null : h("p", { class: "muted" }, "No commit here names a stream.")),
    told.streams.map((one) => {
      const silent = ms(told.now) - ms(one.completion), usual = (one.every_s || 0) * 1000;
      const late = usual && silent > Math.max(10 * usual, 5000);
      return panel(heading(name(short(one.identifier, 200)), h("span", { class: "end" }, badge(late ? "silent" : "on time", late ? "warning" : "good"))),
        facts([["Newest batch", code(one.batch)], ["Committed", `${span(silent)} ago`], ["Usually every", one.every_s === null ? "–" : span(usual)], ["Commits known", number(one.commits)], ["Rows", number(one.rows)], ["Writer", one.writer ? name(one.writer) : "–"]]),
        spark(one.points), Object.keys(one.noted).length ? facts(Object.entries(one.noted).slice(0, 20).map(([k, v]) => [shown(k), code(short(v, 600))])) : null);
    }));
    return told.more;
  }
  await refresh();
  return { refresh, every: 3000 };
}

function spark(points) {
  const NS = "http://www.w3.org/2000/svg";
  const most = Math.max(1, ...points.map((one) => one[2] || 0));
  const made = document.createElementNS(NS, "svg");
  for (const [key, value] of Object.entries({ class: "spark", viewBox: "0 0 600 36", preserveAspectRatio: "none", role: "img", "aria-label": `Rows of the last ${points.length} batches, at most ${most}` })) made.setAttribute(key, value);
  points.forEach((one, n) => {
    const bar = document.createElementNS(NS, "rect"), wide = 600 / Math.max(points.length, 30), tall = Math.max(1.5, (34 * (one[2] || 0)) / most);
    for (const [key, value] of Object.entries({ x: n * wide, y: 36 - tall, width: wide * 0.72, height: tall })) bar.setAttribute(key, value);
    made.append(bar);
  });
  return made;
}

export async function properties({ table: id, place }) {
  const told = await ask(`tables/${id}/properties`);
  told.properties.sort((a, b) => Boolean(b.unusual) - Boolean(a.unusual) || (a.key < b.key ? -1 : 1));
  let items = told.properties;
  const details = h("section", { class: "panel", hidden: true, "aria-label": "Chosen property" });
  const search = h("input", { type: "search", oninput: show });
  const unusual = h("input", { type: "checkbox", onchange: show });
  const list = new List({ label: "Properties", kind: "properties", most: 16, columns: [
    { title: "Property", of: (one) => code(short(one.key, 200)) }, { title: "Value", of: (one) => code(short(one.value, 200)) },
    { title: "Default, or what is unusual", class: "p2", of: (one) => (one.unusual ? h("span", { class: "warn" }, short(one.unusual, 90)) : h("span", { class: "muted" }, one.default ? `default ${short(one.default, 40)}` : "")) }],
  get: (n) => items[n], open: (one) => {
    details.hidden = false;
    fill(details, heading(code(one.key)), facts([["Value", code(one.value)], ["Default", code(one.default || "–")], ["Expected", shown(one.expected || "–")]]), one.says ? h("p", {}, shown(one.says)) : null, one.unusual ? h("p", { class: "warn" }, shown(one.unusual)) : null);
  } });
  fill(place, panel(heading("Properties", h("span", { class: "end muted small" }, `${number(told.properties.length)}, ${number(told.properties.filter((one) => one.unusual).length)} unusual`)),
    h("div", { class: "tools" }, h("label", { class: "wide" }, "Name or value contains", search), h("label", { class: "check" }, unusual, h("span", {}, "only unusual ones"))), list.element), details);
  function show() {
    const text = search.value.trim().toLowerCase();
    items = told.properties.filter((one) => (!unusual.checked || one.unusual) && (!text || `${one.key} ${one.value}`.toLowerCase().includes(text)));
    list.setCount(items.length);
  }
  show();
}

export async function doctor({ table: id, place }) {
  fill(place, panel(heading("Doctor"), h("p", { class: "muted" }, "Looking at settings, timeline, files and indexes…")));
  const told = await ask(`tables/${id}/doctor`);
  const wrong = told.findings.filter((one) => one.severity !== "note").length;
  fill(place, panel(heading("Doctor", h("span", { class: "end" }, wrong ? badge(plural(wrong, "finding"), "bad") : badge("nothing wrong", "good"))),
    h("div", { class: "stack" }, told.findings.length ? told.findings.map(finding) : h("p", { class: "muted" }, "Nothing to say.")),
    h("p", { class: "small muted" }, "The page mends nothing: run the commands where writers run.")));
}

export { moment };
