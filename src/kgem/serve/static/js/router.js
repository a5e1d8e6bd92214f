// Addresses: #/ask?head=France&relation=borders stands for a view and its parameters.

export const FIRST = "ask";

/** The address of a view; empty parameters are left out, so that equal states have equal addresses. */
export function href(view, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "" && value !== false)
      query.set(key, value === true ? "1" : value);
  }
  return query.size ? `#/${view}?${query}` : `#/${view}`;
}

/** The view and the parameters that an address stands for. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, part] = path.split("/");
  return { view: view || FIRST, part: part ?? null, params: Object.fromEntries(new URLSearchParams(query)) };
}

/** Go to an address; `replace` leaves no step for the back button. */
export function go(address, { replace = false } = {}) {
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(history.state, "", address);
    dispatchEvent(new Event("hashchange"));
  } else {
    location.hash = address;
  }
}
