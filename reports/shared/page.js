/* What the page gets with JavaScript: sortable, filterable tables, and tables and figures to save. Nothing else needs it. */

for (const table of document.querySelectorAll("table")) {
  makeSortable(table);
  const buttons = saveButtons(nameOf(table), [
    ["CSV", "text/csv", "csv", () => csvOf(table)],
    ["LaTeX", "application/x-tex", "tex", () => latexOf(table)],
    ["Markdown", "text/markdown", "md", () => markdownOf(table)],
  ]);
  const filter = filterOf(table);
  const place = table.closest(".scroll") ?? table;
  if (filter) place.before(element("div", { class: "tools" }, filter));
  place.after(element("div", { class: "tools" }, buttons));
}

for (const figure of document.querySelectorAll("figure")) {
  const drawings = [...figure.querySelectorAll("svg")];
  if (!drawings.length) continue;
  const name = nameOf(figure) || "figure";
  // Buttons inside an element of the role "img" would be hidden from screen readers.
  if (figure.getAttribute("role") === "img") {
    for (const svg of drawings) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", figure.getAttribute("aria-label"));
      svg.removeAttribute("aria-hidden");
    }
    figure.removeAttribute("role");
    figure.removeAttribute("aria-label");
  }
  // Of a drawing for wide and one for narrow screens, the one that is visible.
  const shown = () => drawings.find((svg) => svg.getClientRects().length) ?? drawings[0];
  const buttons = saveButtons(name, [
    ["SVG", "image/svg+xml", "svg", () => standalone(shown()).text],
    ["PNG", "image/png", "png", () => pngOf(shown())],
  ]);
  figure.append(element("div", { class: "tools" }, buttons));
}

// Paper cannot be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});
