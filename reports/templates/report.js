"use strict";
(() => {
  const form = document.getElementById("filter");
  const checks = [...document.querySelectorAll("#checks .check")];
  const subjects = [...document.querySelectorAll("#checks .subject")];
  // What a failed check has to say stands with the failures.
  const textOf = (check) => {
    const link = check.querySelector('a[href^="#failure-"]');
    return link ? document.getElementById(link.hash.slice(1)).textContent : check.textContent;
  };
  const words = new Map(checks.map((check) => [check, textOf(check).toLowerCase()]));
  const apply = () => {
    const data = new FormData(form);
    const outcomes = new Set(data.getAll("outcome"));
    const wanted = String(data.get("text")).toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const check of checks) {
      check.hidden = !outcomes.has(check.dataset.outcome) || !wanted.every((word) => words.get(check).includes(word));
      shown += check.hidden ? 0 : 1;
    }
    for (const subject of subjects) {
      subject.hidden = !subject.querySelector(".check:not([hidden])");
    }
    document.getElementById("shown").textContent = `${shown} of ${checks.length} checks shown`;
  };
  if (form) {
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    apply();
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
