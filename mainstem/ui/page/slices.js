// One file group: a row for each file slice, newest on top; its base file and its log files where they were completed.
import { h, bytes } from "./dom.js";
import { ms, ticks, tickText } from "./times.js";

const NS = "http://www.w3.org/2000/svg";
const s = (tag, props, ...children) => {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

export function sliceChart(files, width) {
  const slices = [...new Set(files.map((one) => one.slice || "none"))].sort().reverse().slice(0, 40);
  const at = (one) => ms(one.completion || one.instant);
  const times = files.map(at);
  let from = Math.min(...times), to = Math.max(...times);
  const pad = Math.max(500, (to - from) * 0.04);
  from -= pad; to += pad;
  const left = width < 520 ? 8 : 92, row = 30, height = slices.length * row + 26;
  const x = (time) => left + ((time - from) / (to - from)) * (width - left - 12);
  const made = s("svg", { class: "slices", viewBox: `0 0 ${width} ${height}`, height: String(height), role: "img", "aria-label": `${slices.length} file slices` });
  const { step, at: marks } = ticks(from, to, Math.max(2, (width - left) / 110));
  for (const mark of marks) {
    made.append(s("line", { x1: x(mark), x2: x(mark), y1: 0, y2: height - 22 }), s("text", { x: x(mark), y: height - 6, "text-anchor": "middle" }, tickText(mark, step)));
  }
  const most = Math.max(...files.map((one) => one.size), 1);
  slices.forEach((slice, n) => {
    const y = n * row + 4;
    made.append(s("rect", { class: "row", x: left - 4, y, width: width - left, height: row - 6, rx: 5 }));
    if (left > 20) made.append(s("text", { x: 4, y: y + 16 }, slice === "none" ? "no slice" : tickText(ms(slice), 1)));
    for (const one of files.filter((f) => (f.slice || "none") === slice)) {
      const size = 4 + 9 * Math.sqrt(one.size / most);
      const kind = `${one.state === "pending" ? "open" : one.state === "unused" ? "lost" : one.kind}${one.state === "older" || one.state === "replaced" ? " faint" : ""}`;
      const title = s("title", {}, `${one.kind}, ${one.state}, ${bytes(one.size)}`);
      made.append(one.kind === "base"
        ? s("rect", { class: kind, x: x(at(one)) - size / 2, y: y + 12 - size, width: size, height: size * 2, rx: 2 }, title)
        : s("circle", { class: kind, cx: x(at(one)), cy: y + 12, r: Math.max(2.5, size * 0.62) }, title));
    }
  });
  return h("div", {}, made);
}
