// Light or dark before anything is drawn: what was chosen here before, else what the system says.
(() => {
  try {
    const chosen = localStorage.getItem("kgem-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden; the system's choice is then the one.
  }
})();
