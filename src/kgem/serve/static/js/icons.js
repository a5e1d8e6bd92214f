// Small line drawings, on a ground of 24 by 24.

import { svg } from "./dom.js";

const PATHS = {
  ask: "M8.2 8.4a3.8 3.8 0 1 1 5.6 3.3c-1.1.6-1.8 1.4-1.8 2.6M12 17.6v.1M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0Z",
  entity: "M12 12.2a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM4.5 20.5c.9-3.6 3.8-5.5 7.5-5.5s6.6 1.9 7.5 5.5",
  graph: "M4 4v16h16M8 15.5v.1M11.5 11v.1M15 12.5v.1M18.5 7v.1",
  review: "M4 6.5h10M4 12h6M4 17.5h6M14 15.5l2.7 2.7L21.5 12.5",
  sun: "M12 16.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM12 2v2M12 20v2M2 12h2M20 12h2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5Z",
  auto: "M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0ZM12 3v18M15 3.6v16.8M18 5.3v13.4",
  further: "M5 12h14M13 6l6 6-6 6",
  swap: "M7 4 3.5 7.5 7 11M3.5 7.5h13M17 13l3.5 3.5L17 20M20.5 16.5h-13",
  link: "M10 14a4 4 0 0 0 5.7 0l3.6-3.6a4 4 0 0 0-5.7-5.7L12.5 5.8M14 10a4 4 0 0 0-5.7 0l-3.6 3.6a4 4 0 0 0 5.7 5.7l1.1-1.1",
  close: "M6 6l12 12M18 6 6 18",
  tick: "M5 12.5l4.5 4.5L19 7.5",
  undo: "M8 5 4 9l4 4M4 9h10a5.5 5.5 0 0 1 0 11h-4",
  skip: "M6 5l8 7-8 7ZM18 5v14",
  save: "M12 4v11M7.5 11 12 15.5 16.5 11M4.5 19.5h15",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13ZM20 20l-4.8-4.8",
  warn: "M12 4 2.8 19.5h18.4ZM12 10v4.5M12 17v.1",
};

/** A small line drawing beside words; it has no meaning of its own. */
export function icon(what) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[what] }));
}
