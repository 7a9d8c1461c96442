// Boards whose rows are sorted by a column, and that show those with the words of the filter.

for (const section of document.querySelectorAll("section")) {
  const body = section.querySelector("table.rows tbody");
  for (const button of section.querySelectorAll("table.rows thead button")) {
    button.addEventListener("click", () => body.append(...sorted(button, [...body.rows], (row) => row.cells)));
  }
  const filter = section.querySelector("input");
  filter.closest("p").hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of body.rows) {
      const text = row.cells[0].textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
