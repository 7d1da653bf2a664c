// Applies the chosen theme before the first paint. It blocks, so it is tiny and by itself.
try {
  const chosen = localStorage.getItem("bide-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage is blocked: the system's theme */ }
