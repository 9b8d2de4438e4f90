// Instants are texts yyyyMMddHHmmssSSS in the table's zone; here they are numbers of milliseconds, of no zone.

export function ms(instant) {
  if (!instant) return null;
  const t = instant.padEnd(17, "0");
  return Date.UTC(+t.slice(0, 4), +t.slice(4, 6) - 1, +t.slice(6, 8), +t.slice(8, 10), +t.slice(10, 12), +t.slice(12, 14), +t.slice(14, 17));
}

const two = (n) => String(n).padStart(2, "0");

export function clock(at, exact) {
  const d = new Date(at);
  const text = `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}:${two(d.getUTCSeconds())}`;
  return exact ? `${text}.${String(d.getUTCMilliseconds()).padStart(3, "0")}` : text;
}

export const day = (at) => new Date(at).toISOString().slice(0, 10);
export const moment = (instant) => (instant ? `${day(ms(instant))} ${clock(ms(instant), true)}` : "–");

export function span(milliseconds) {
  const s = milliseconds / 1000;
  if (s < 1) return `${Math.max(0, Math.round(milliseconds))} ms`;
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129600) return `${(s / 3600).toFixed(s < 36000 ? 1 : 0)} h`;
  return `${Math.round(s / 86400)} days`;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 18e5,
  36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6];

export function ticks(from, to, most) {
  const step = STEPS.find((one) => (to - from) / one <= most) || STEPS[STEPS.length - 1];
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to && found.length < 100; at += step) found.push(at);
  return { step, at: found };
}

export function tickText(at, step) {
  if (step >= 864e5) return day(at);
  const text = clock(at, step < 1000);
  return step >= 60e3 ? text.slice(0, 5) : text;
}
