// Elements and words. Text from tables is always a text node: nothing is ever parsed as HTML.

export function h(tag, props, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name in made && name !== "list" && !name.includes("-")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(9).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

// A name from a table: kept apart from the text around it, whatever direction it has.
export const name = (text, more) => h("bdi", { class: `name ${more || ""}` }, shown(text));
export const code = (text, more) => h("bdi", { class: `code ${more || ""}` }, shown(text));

// Characters that show nothing, or turn the text around them, are shown as what they are.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
export function shown(text) {
  const whole = text === null || text === undefined ? "" : String(text);
  return whole.replace(UNSEEN, (c) => `‹${c.codePointAt(0).toString(16).padStart(4, "0")}›`);
}

export function short(text, most = 60) {
  const whole = shown(text);
  return whole.length <= most ? whole : `${whole.slice(0, most - 1)}…`;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(9).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let size = value, unit = 0;
  while (size >= 999.5 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit && size < 9.95 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export const plural = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;

let saying = 0;
export function say(text) {
  const place = document.getElementById("said");
  clearTimeout(saying);
  saying = setTimeout(() => { place.textContent = text; }, 150);
}

export function facts(pairs, more = "") {
  return h("dl", { class: `facts ${more}` }, pairs.filter(Boolean).map(([term, value]) =>
    h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

export function badge(text, kind) {
  return h("span", { class: `badge ${kind || ""}` }, text);
}

export function notice(error) {
  const told = error && error.told ? error.told : { kind: "", message: String(error && error.message || error) };
  return h("div", { class: "notice", role: "alert" },
    h("strong", {}, told.kind === "CorruptTable" ? "Damaged: " : told.kind === "NotThere" ? "Not there: " : ""),
    h("span", {}, shown(told.message)),
    told.file ? h("p", {}, "file ", code(told.file)) : null);
}

export const reduced = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// A path as part of this page's address.
export const link = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
