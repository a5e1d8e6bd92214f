// Talks to the server: answers, errors with their remedy, work that is still going on, and a server that is gone.

import { learn } from "./names.js";

/** What the server refused, and what to do about it. */
export class Refused extends Error {
  constructor(status, { kind, message, remedy, suggestions } = {}) {
    super(message ?? `the server answered with status ${status}`);
    Object.assign(this, { status, kind: kind ?? "unknown", remedy: remedy ?? null, suggestions: suggestions ?? [] });
  }
}

/** Nobody answered. */
export class Offline extends Error {
  constructor() {
    super("the server does not answer");
  }
}

export const connection = new EventTarget(); // says "lost" and "back"
let lost = false;

function heard(answered) {
  if (answered === !lost) return;
  lost = !answered;
  connection.dispatchEvent(new Event(lost ? "lost" : "back"));
}

function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, value);
  }
  return query.size ? `/api/${path}?${query}` : `/api/${path}`;
}

async function call(url, options, { probing = false } = {}) {
  if (lost && !probing) throw new Offline(); // whoever probes says when it is back, and then everything is asked anew
  let response;
  let body;
  try {
    response = await fetch(url, { credentials: "omit", cache: "no-store", ...options });
    body = await response.text();
  } catch (problem) {
    if (options?.signal?.aborted) throw problem;
    heard(false);
    throw new Offline();
  }
  heard(true);
  let data = null;
  try {
    data = JSON.parse(body);
  } catch {
    // Not ours: told as such below.
  }
  learn(data?.names);
  if (!response.ok || data === null) throw new Refused(response.status, data?.error);
  return { data, working: response.status === 202 };
}

/** The answer to a GET. */
export async function get(path, params, signal) {
  return (await call(address(path, params), { signal })).data;
}

/** What the server says of itself; the one question that is also asked while nobody answers. */
export async function about() {
  return (await call(address("about"), {}, { probing: true })).data;
}

/** The answer to a GET of something that takes its time; `progress` hears (done, of) until it is there. */
export async function ready(path, params, signal, progress) {
  for (let pause = 150; ; pause = Math.min(1000, pause * 1.4)) {
    const { data, working } = await call(address(path, params), { signal });
    if (!working) return data;
    progress(data.done ?? 0, data.of ?? 0);
    await new Promise((done) => setTimeout(done, pause));
    signal?.throwIfAborted();
  }
}

/** The answer to a POST. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await call(address(path), { method: "POST", headers, body: JSON.stringify(body) })).data;
}
