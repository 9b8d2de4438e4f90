// The frame of the page: addresses, sections, colours, the token, and what is refreshed while it is seen.
import { ask, keepToken } from "./api.js";
import { h, fill, name, shown, link, say } from "./dom.js";
import * as views from "./views.js";

const SECTIONS = [["overview", "Overview"], ["timeline", "Timeline"], ["files", "Files"], ["key", "Key"], ["query", "Query"], ["indexes", "Indexes"], ["streams", "Streams"], ["properties", "Properties"], ["doctor", "Doctor"]];
const main = document.getElementById("main"), sections = document.getElementById("sections"), where = document.getElementById("where"), live = document.getElementById("live");
let turn = 0, names = new Map(), quiet = false;

// -- addresses --------------------------------------------------------------------------------------

function go(parts) {  // another address for what is shown already
  quiet = true;
  history.replaceState(null, "", link(...parts));
  quiet = false;
}

async function show() {
  const mine = ++turn;
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter((one, n, all) => one || n < all.length - 1).map(read);
  const [kind, table, section = "overview", at, more] = parts;
  const here = kind === "t" && table;
  live.textContent = "";
  live.className = "live";
  const view = here ? (SECTIONS.some(([one]) => one === section) ? views[section] : views.overview) : views.tables;
  frame(here ? table : null, section);
  const place = h("div", { class: "stack" });
  fill(main, place);
  try {
    if (here && !names.has(table)) for (const one of (await ask("tables")).tables) names.set(one.id, one.name);
    if (mine !== turn) return;
    fill(where, here ? name(names.get(table) || table) : null);
    document.title = here ? `${short(names.get(table) || table)} · ${section} · mainstem` : "mainstem";
    const made = await view({ table, place, at, more, go });
    place.dataset.shown = here ? section : "tables";
    if (mine === turn && made) follow(made, mine, place);
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 401) askToken(); else { views.failing(place, error); again(mine, error); }
  }
}

const short = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);
const read = (part) => { try { return decodeURIComponent(part); } catch { return part; } };

// A server that does not answer is asked again; other errors stay until the page is changed.
function again(mine, error) {
  if (error.status === 0 || error.status === 503) setTimeout(() => { if (mine === turn) show(); }, 3000);
}

// Refreshed while it is in sight; sooner while the server has more to tell.
async function follow(made, mine, place) {
  let more = false, failures = 0;
  const trouble = h("div", { class: "notice", role: "alert", hidden: true });
  place.prepend(trouble);
  const mark = (on, text) => { live.className = `live ${on ? "on" : "off"}`; if (live.textContent !== text) live.textContent = text; };
  mark(true, "live");
  for (;;) {
    await new Promise((done) => setTimeout(done, more ? 40 : Math.min(made.every * 2 ** failures, 30000)));
    if (mine !== turn) return;
    if (document.hidden) { await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true })); continue; }
    try {
      more = Boolean(await made.refresh());
      failures = 0;
      if (mine !== turn) return;
      trouble.hidden = true;
      mark(true, "live");
    } catch (error) {
      if (mine !== turn) return;
      if (error.status === 401) { askToken(); return; }
      failures += 1; more = false;
      trouble.hidden = false;
      trouble.textContent = `${shown(error.message)} Shown is what was known before.`;
      mark(false, "not live");
    }
  }
}

function frame(table, section) {
  sections.hidden = !table;
  fill(where, table ? name(names.get(table) || "") : null);
  if (!table) return;
  fill(sections, SECTIONS.map(([one, label]) => h("a", { href: link("t", table, one), "aria-current": one === section ? "page" : null, tabIndex: one === section ? 0 : -1 }, label)));
  const current = sections.querySelector("[aria-current]");
  if (current && sections.scrollWidth > sections.clientWidth) sections.scrollLeft = current.offsetLeft - 60;
}

// One section is in the tab order; arrows go to the others.
sections.addEventListener("keydown", (event) => {
  const all = [...sections.children], at = all.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const next = all[(to + all.length) % all.length];
  for (const one of all) one.tabIndex = one === next ? 0 : -1;
  next.focus();
});

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
let begun = false;
addEventListener("hashchange", () => { if (!quiet) { show().then(() => { if (begun) say(document.title); }); begun = true; if (document.activeElement === document.body) main.focus({ preventScroll: true }); scrollTo(0, 0); } });

// -- the token ----------------------------------------------------------------------------------------

function askToken() {
  if (document.querySelector("dialog")) return;
  const field = h("input", { type: "password", autocomplete: "off", required: true });
  const dialog = h("dialog", { "aria-label": "Token" }, h("form", { method: "dialog", onsubmit: () => { keepToken(field.value.trim()); dialog.remove(); show(); } },
    h("h2", {}, "This server wants its token"), h("p", { class: "muted small" }, "It was given where mainstem ui was started. It stays in this tab."), h("label", {}, "Token", field), h("button", { class: "main", type: "submit" }, "Show the tables")));
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
}

// -- colours ------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"], dark = matchMedia("(prefers-color-scheme: dark)"), button = document.getElementById("theme");
const kept = () => { try { return localStorage.getItem("mainstem-theme") || "auto"; } catch { return "auto"; } };
function colour() {
  const theme = kept();
  document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[theme];
  button.setAttribute("aria-label", `Colours: ${theme === "auto" ? "as the system" : theme}`);
  document.dispatchEvent(new Event("recoloured"));
}
button.addEventListener("click", () => {
  try { localStorage.setItem("mainstem-theme", THEMES[(THEMES.indexOf(kept()) + 1) % 3]); } catch { /* kept by nobody */ }
  colour();
});
dark.addEventListener("change", colour);
colour();
show();
