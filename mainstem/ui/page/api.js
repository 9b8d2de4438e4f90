// Asks the server. The token, if there is one, stays in this tab.

export class Failed extends Error {
  constructor(status, told) { super(told.message); this.status = status; this.told = told; }
}

const KEY = "mainstem-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export const keepToken = (token) => sessionStorage.setItem(KEY, token);

export async function ask(path, values, { body, signal } = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values || {})) {
    if (value !== null && value !== undefined) query.set(key, value);
  }
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(`api/${path}${query.size ? `?${query}` : ""}`, {
      method: body ? "POST" : "GET", headers, body: body ? JSON.stringify(body) : undefined, signal,
      credentials: "omit", cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, { kind: "Unavailable", message: "the server does not answer; is mainstem ui still running?" });
  }
  let told;
  try { told = await answer.json(); } catch { told = {}; }
  if (!answer.ok) throw new Failed(answer.status, told.error || { kind: "", message: `status ${answer.status}` });
  return told;
}
