// What people call symbols: every answer of the server brings the names of the labels in it.

const known = new Map(); // label -> [name or null, the label made short]

export const named = new EventTarget(); // says "more" when names have come

/** Take in the names of an answer. */
export function learn(names) {
  const before = known.size;
  for (const [label, pair] of Object.entries(names ?? {})) known.set(label, pair);
  if (known.size > before) named.dispatchEvent(new Event("more"));
}

/** A label as one would say it: its name, or the label made short. */
export function said(label) {
  const [name, short] = known.get(label) ?? [];
  return name ?? short ?? label;
}

/** What stands beside the name of a label: the label made short; null where the label itself is shown. */
export function beside(label) {
  const [name, short] = known.get(label) ?? [];
  return name && name !== short ? short : null;
}
