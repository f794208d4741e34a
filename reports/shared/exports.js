/* Saving a table as CSV, LaTeX or Markdown, and a figure as SVG or PNG. Cells are escaped as in `robustkit report`. */

const FORMULA = /^[=+\-@\t\r]/; // what a spreadsheet takes for the start of a formula
const PLAIN = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const LATEX = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}",
  ">": "\\textgreater{}", "|": "\\textbar{}", '"': "\\symbol{34}", "`": "\\textasciigrave{}",
  "[": "{[}", "*": "{*}", // the end of the row before would read them as its own
  "–": "--", "−": "$-$", "≤": "$\\leq$", "≥": "$\\geq$", "×": "$\\times$", "→": "$\\rightarrow$", "…": "\\ldots{}",
};
for (const sign of "&%$#_{}") LATEX[sign] = `\\${sign}`;

/** A table as texts: caption, header and lines. Titles of row groups become a first column.
 *  With `split`, the small print below a value (its interval) has a column of its own. */
function textsOf(table, split) {
  const rows = bodyRows(table).filter((row) => !row.hidden);
  const cells = cellsOf(rows);
  const heads = headOf(table);
  const columns = [...Array(Math.max(0, ...cells.map((row) => row.length), ...heads.map((row) => row.length))).keys()];
  const titled = rows.some(isTitle);
  const small = columns.map((column) =>
    split && rows.some((row, down) => !isTitle(row) && cells[down][column]?.querySelector("small")));
  const lines = [];
  let title = "";
  rows.forEach((row, down) => {
    if (isTitle(row)) {
      title = textOf(row.cells[0]);
      return;
    }
    const line = columns.flatMap((column) => {
      const cell = cells[down][column];
      const isFirst = cell && cells[down].indexOf(cell) === column;
      return isFirst ? partsOf(cell, small[column]) : small[column] ? ["", ""] : [""];
    });
    lines.push(titled ? [title, ...line] : line);
  });
  const header = columns.flatMap((column) => {
    const parts = new Set(heads.map((row) => row[column]).filter(Boolean).map((cell) => textOf(cell)));
    const name = [...parts].filter(Boolean).join(" ");
    return small[column] ? [name, `${name} (details)`] : [name];
  });
  return withoutEmpty({ caption: table.caption ? textOf(table.caption) : "", header: titled ? ["group", ...header] : header, lines });
}

function partsOf(cell, split) {
  const value = textOf(cell, `small, ${RANK}`);
  const details = [...cell.querySelectorAll("small")].map((each) => textOf(each)).filter(Boolean);
  if (split) return [value, details.join("; ")];
  return [details.length ? `${value} (${details.join(", ")})`.trim() : value];
}

/** Without the columns that hold bars and pictures alone. */
function withoutEmpty({ caption, header, lines }) {
  const kept = header.map((_, column) => lines.some((line) => line[column] !== ""));
  const only = (line) => line.filter((_, column) => kept[column]);
  return { caption, header: only(header), lines: lines.map(only) };
}

function csvCell(text) {
  const plain = text.replace("−", "-");
  if (PLAIN.test(plain)) return plain;
  const safe = text.length > 1 && FORMULA.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const latexText = (text) => text.replace(/[\\~^<>|"`[*–−≤≥×→…&%$#_{}]/g, (sign) => LATEX[sign]);
const markdownText = (text) => text.replace(/[\\`*_{}[\]<>#+!|~$&]/g, "\\$&");

function csvOf(table) {
  const { header, lines } = textsOf(table, true);
  return [...(header.length ? [header] : []), ...lines].map((line) => `${line.map(csvCell).join(",")}\n`).join("");
}

function latexOf(table) {
  const { caption, header, lines } = textsOf(table);
  const isNumeric = (column) => lines.every((line) => line[column] === "" || line[column] === "–" || !Number.isNaN(numberIn(line[column])));
  const rows = [header, ...lines].map((line) => `    ${line.map(latexText).join(" & ")} \\\\`);
  return [
    "\\begin{table}", "  \\centering", `  \\caption{${latexText(caption)}}`,
    `  \\begin{tabular}{${header.map((_, column) => (isNumeric(column) ? "r" : "l")).join("")}}`, "    \\toprule",
    rows[0], "    \\midrule", ...rows.slice(1), "    \\bottomrule", "  \\end{tabular}", "\\end{table}", "",
  ].join("\n");
}

function markdownOf(table) {
  const { caption, header, lines } = textsOf(table);
  const rows = [header.map(markdownText), header.map(() => "---"), ...lines.map((line) => line.map(markdownText))];
  return [...rows.map((line) => `| ${line.join(" | ")} |`), "", markdownText(caption), ""].join("\n");
}

const STYLES = ["color", "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "paint-order",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline", "visibility", "display"];

/** A copy of a figure that needs no page: every colour and font written out, in the light colours, on white. */
function standalone(svg) {
  const [, , width, bare] = svg.viewBox.baseVal.width
    ? svg.getAttribute("viewBox").split(/[\s,]+/).map(Number)
    : [0, 0, svg.clientWidth, svg.clientHeight];
  const light = [...document.styleSheets[0].cssRules].find((rule) => rule.selectorText === ":root")?.style ?? [];
  const before = svg.getAttribute("style");
  for (const name of light) if (name.startsWith("--")) svg.style.setProperty(name, light.getPropertyValue(name));
  svg.style.color = "var(--ink)";
  const { added, height } = drawLegend(svg, width, bare);
  const copy = svg.cloneNode(true);
  const copies = [...copy.querySelectorAll("*")];
  [...svg.querySelectorAll("*")].forEach((each, place) => {
    if (each.matches("defs, title, desc, clipPath, metadata")) return;
    const style = getComputedStyle(each);
    // What a shape in <defs> does not say itself comes from the place that uses it.
    const names = each.closest("defs") ? STYLES.filter((name) => each.style.getPropertyValue(name)) : STYLES;
    for (const name of names) copies[place].style.setProperty(name, style.getPropertyValue(name));
  });
  added?.remove();
  if (added) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const paper = getComputedStyle(svg).getPropertyValue("--paper").trim() || "#fff";
  if (before === null) svg.removeAttribute("style");
  else svg.setAttribute("style", before);
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height })) copy.setAttribute(name, value);
  for (const name of ["style", "class", "aria-hidden", "focusable"]) copy.removeAttribute(name);
  copy.prepend(drawn("rect", { width: "100%", height: "100%", fill: paper }));
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

/** The figure drawn at three times its size. */
function pngOf(svg) {
  const { text, width, height } = standalone(svg);
  const canvas = element("canvas", { width: Math.ceil(3 * width), height: Math.ceil(3 * height) });
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  return picture.decode().then(() => {
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  });
}

/** Save a file; its name is made of what it shows. */
async function save(content, kind, ending, name) {
  const slug = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+/, "").slice(0, 50).replace(/-+$/, "");
  const link = element("a", { download: `${slug || "robustkit"}.${ending}` });
  link.href = URL.createObjectURL(new Blob([await content], { type: kind }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Buttons that save one thing in several formats. `formats`: label, type, ending and the function that writes it. */
function saveButtons(name, formats) {
  const buttons = formats.map(([label, kind, ending, write]) => {
    const button = element("button", { type: "button", "aria-label": `${label}: save ${name}` }, label);
    button.addEventListener("click", () => save(write(), kind, ending, name));
    return button;
  });
  return element("span", { class: "save" }, ...buttons);
}
