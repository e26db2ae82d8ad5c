"use strict";
// Filter, sort and open; the page can be read without.
for (const table of document.querySelectorAll("table.attempts")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  table.tHead.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isAscending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
      const text = (row) => row.cells[column]?.textContent ?? "";
      const order = (one, two) => text(one).localeCompare(text(two), "en", { numeric: true });
      rows.sort((one, two) => (isAscending ? order(one, two) : order(two, one)));
      body.append(...rows);
    });
  });
  const form = table.parentElement.previousElementSibling;
  if (!form?.matches("form.filter")) continue;
  form.hidden = false;
  const apply = () => {
    const wanted = form.elements.text.value.toLowerCase();
    const verdict = form.elements.verdict.value;
    const groups = Array.from(form.querySelectorAll("select[name=group]"), (each) => each.value);
    let shown = 0;
    for (const row of rows) {
      const isWanted =
        (!verdict || row.dataset.verdict === verdict) &&
        groups.every((group) => !group || `\n${row.dataset.groups}\n`.includes(`\n${group}\n`)) &&
        row.textContent.toLowerCase().includes(wanted);
      row.hidden = !isWanted;
      shown += isWanted;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
}
const open = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
};
addEventListener("hashchange", open);
open();
