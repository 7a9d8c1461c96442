"use strict";
// Sorts a board's rows by a column, and shows those that have the words of the filter.

const number = text => {
  const value = parseFloat(text);
  return Number.isNaN(value) ? null : value;
};

function compare(a, b, at, down) {
  const [first, second] = [a, b].map(row => row.cells[at].dataset.value.trim());
  const [x, y] = [first, second].map(number);
  if (x === null && y === null) return down ? second.localeCompare(first) : first.localeCompare(second);
  if (x === null || y === null) return x === null ? 1 : -1; // what is no number comes last
  return down ? y - x : x - y;
}

for (const section of document.querySelectorAll("section")) {
  const body = section.querySelector("table.rows tbody");
  const heads = [...section.querySelectorAll("table.rows thead th")];
  heads.forEach((head, at) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => compare(a, b, at, down)));
    });
  });
  const filter = section.querySelector("input");
  filter.closest("p").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.cells[0].textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}
