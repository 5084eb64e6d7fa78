"use strict";
(() => {
  // The newest run is at the right end.
  for (const table of document.querySelectorAll("table.runs")) table.parentElement.scrollLeft = table.scrollWidth;
  const form = document.getElementById("filter");
  if (!form) return;
  const kinds = ["check", "number"].map((kind) => {
    const rows = [...document.querySelectorAll(`tr[data-row="${kind}"]`)];
    return { kind, rows, words: rows.map((row) => row.cells[0].textContent.toLowerCase()) };
  });
  const apply = () => {
    const wanted = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = kinds.map(({ kind, rows, words }) => {
      rows.forEach((row, place) => { row.hidden = !wanted.every((word) => words[place].includes(word)); });
      return `${rows.filter((row) => !row.hidden).length} of ${rows.length} ${kind}s`;
    });
    document.getElementById("shown").textContent = `${counts.join(", ")} shown`;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  apply();
})();
