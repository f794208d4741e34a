/* Tables: the text of their cells, sorting by a click on a header, and a filter above long ones. */

const LONG = 12; // rows from which on a table gets a filter
const NUMBER = /^[\s≤≥<>~×+−-]*(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])(?:\s*\/\s*(\d[\d,]*))?/i;
const RANK = ".place"; // a rank before a name
const collator = new Intl.Collator("en", { numeric: true });

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** What a reader sees of an element, on one line; what matches the selector `skip` is left out. */
function textOf(node, skip) {
  return rawText(node, skip).replace(/\s+/g, " ").trim();
}

function rawText(node, skip) {
  let text = "";
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) text += child.data;
    if (child.nodeType !== Node.ELEMENT_NODE || child.matches("[aria-hidden=true], svg")) continue;
    if (skip && child.matches(skip)) continue;
    const apart = child.tagName === "BR" || !/^(inline|none|contents)/.test(getComputedStyle(child).display);
    const inside = child.tagName === "IMG" ? child.alt : rawText(child, skip);
    text += apart ? ` ${inside} ` : inside;
  }
  return text;
}

/** The cell of each row and column; a cell that spans several is repeated. */
function cellsOf(rows) {
  const grid = rows.map(() => []);
  rows.forEach((row, down) => {
    for (const cell of row.cells) {
      let across = 0;
      while (grid[down][across]) across += 1;
      for (let r = 0; r < Math.max(1, cell.rowSpan) && down + r < rows.length; r++)
        for (let c = 0; c < cell.colSpan; c++) grid[down + r][across + c] = cell;
    }
  });
  return grid;
}

/** Whether a row is the title of those below it. */
const isTitle = (row) => row.cells.length === 1 && row.cells[0].colSpan > 1;

const headOf = (table) => (table.tHead ? cellsOf([...table.tHead.rows]) : []);
const bodyRows = (table) => [...table.tBodies].flatMap((body) => [...body.rows]);

/** A header without signs, units and extra lines, for sentences. */
function nameOf(node) {
  const region = node.closest("[role=region][aria-label]");
  const own = node.caption ? textOf(node.caption) : node.getAttribute("aria-label");
  if (region) return region.getAttribute("aria-label");
  const title = node.querySelector("figcaption");
  const section = node.closest("section, main");
  const name = title ? textOf(title) : own || section?.getAttribute("aria-label") || "";
  return name.length > 80 ? `${name.slice(0, 79)}…` : name;
}

/** The number in a text: "87.3 %", "≤ 0.7 %", "−14.5", "195/504" and "1,234 of 2,000" are ordered by size. */
function numberIn(text) {
  const parts = NUMBER.exec(text);
  if (!parts) return NaN;
  const [first, second] = parts.slice(1).map((digits) => Number((digits ?? "1").replaceAll(",", "")));
  const isNegative = /[−-]\s*$/.test(text.slice(0, text.search(/\d/)));
  return ((isNegative ? -1 : 1) * first) / second;
}

function compareTexts(one, two) {
  const [first, second] = [numberIn(one), numberIn(two)];
  if (first < second || first > second) return first < second ? -1 : 1;
  return Number.isNaN(first) || Number.isNaN(second) ? collator.compare(one, two) : 0;
}

/** A comparison of the texts of a column: as numbers where all of them are, else by letters; unknown ones come last. */
function order(texts, isNumeric, direction) {
  const unknown = (text) => text === "" || text === "–" || (isNumeric && Number.isNaN(numberIn(text)));
  const compare = isNumeric ? compareTexts : collator.compare;
  return (one, two) => unknown(texts.get(one)) - unknown(texts.get(two)) ||
    direction * compare(texts.get(one), texts.get(two));
}

/** Sort every body of a table by a column. Titles stay on top, rows of the class `member` stay below their leader. */
function sortTable(table, column, direction, original) {
  for (const body of table.tBodies) {
    const rows = original.get(body);
    const cells = cellsOf(rows);
    const groups = [];
    rows.forEach((row, place) => {
      if (isTitle(row)) return;
      if (row.classList.contains("member") && groups.length) groups.at(-1).push(row);
      else groups.push(Object.assign([row], { cell: cells[place][column] }));
    });
    const texts = new Map(groups.map((group) => [group, group.cell?.dataset.sort ?? (group.cell ? textOf(group.cell, RANK) : "")]));
    const known = [...texts.values()].filter((text) => text !== "" && text !== "–");
    const isNumeric = groups.some((group) => group.cell?.classList.contains("num")) ||
      known.every((text) => !Number.isNaN(numberIn(text)));
    if (direction) groups.sort(order(texts, isNumeric, direction));
    body.append(...rows.filter(isTitle), ...groups.flat());
  }
}

/** Put a button into each header: the first click sorts upwards, the second downwards, the third as it was. */
function makeSortable(table) {
  const rows = bodyRows(table).filter((row) => !isTitle(row));
  const spans = rows.some((row) => [...row.cells].some((cell) => cell.rowSpan > 1));
  if (!table.tHead || table.tHead.classList.contains("sr") || spans || rows.length < 2) return;
  const original = new Map([...table.tBodies].map((body) => [body, [...body.rows]]));
  const heads = headOf(table).at(-1);
  const states = ["none", "ascending", "descending"];
  heads.forEach((head, column) => {
    if (head.tagName !== "TH" || head.colSpan > 1 || !textOf(head, ".sr")) return;
    const button = element("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const state = states[(states.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", state);
      sortTable(table, column, { none: 0, ascending: 1, descending: -1 }[state], original);
    });
  });
}

/** A box that hides the rows without all of its words; null for a short table. */
function filterOf(table) {
  const rows = bodyRows(table);
  const data = rows.filter((row) => !isTitle(row));
  if (data.length < LONG) return null;
  const box = element("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows: ${nameOf(table)}` });
  const count = element("output", { "aria-live": "polite" });
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    for (const row of data) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    for (const body of table.tBodies) {
      const all = [...body.rows];
      const isEmpty = all.every((row) => row.hidden || isTitle(row));
      for (const row of all) if (isTitle(row)) row.hidden = isEmpty;
    }
    count.textContent = box.value ? `${data.filter((row) => !row.hidden).length} of ${data.length}` : "";
  });
  return element("span", { class: "filter" }, box, count);
}
