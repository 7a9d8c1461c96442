"use strict";

/**
 * Return items in the order of a column, and mark its head: numbers from the greatest on at first, texts from A on. What
 * has no value is always last.
 * @template Item
 * @param {HTMLButtonElement} button of the column's head, which says its kind
 * @param {Item[]} items
 * @param {(item: Item) => HTMLCollectionOf<HTMLTableCellElement>} cells
 * @returns {Item[]}
 */
function sorted(button, items, cells) {
  const head = /** @type {HTMLTableCellElement} */ (button.closest("th"));
  const number = button.dataset.kind === "number";
  const before = head.getAttribute("aria-sort");
  const order = before === "none" ? (number ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
  for (const other of head.parentElement?.querySelectorAll("th[aria-sort]") ?? []) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const value = (/** @type {Item} */ item) => {
    const cell = cells(item)[head.cellIndex];
    return cell.dataset.value ?? cell.textContent?.trim() ?? "";
  };
  return items.map((item) => ({ item, value: value(item) })).sort((a, b) => {
    if (a.value === "" || b.value === "") return Number(a.value === "") - Number(b.value === "");
    return sign * (number ? Number(a.value) - Number(b.value) : a.value.localeCompare(b.value, "en", { numeric: true }));
  }).map((entry) => entry.item);
}
