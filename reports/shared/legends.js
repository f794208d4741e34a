/* The legend of a figure stands beside it on the page; a saved figure has it below, as text of its own. */

/** Draw the legend below a figure of this size. Returns what was added to the figure, and the height with it. */
function drawLegend(svg, width, height) {
  const list = svg.closest(":has(> .legend)")?.querySelector(":scope > .legend");
  if (!list) return { added: null, height };
  const size = parseFloat(getComputedStyle(svg.querySelector("text") ?? svg).fontSize);
  const added = drawn("g", { style: `font-size: ${size}px; fill: currentColor` });
  svg.append(added);
  let [x, y] = [size, height + 1.4 * size];
  for (const item of list.children) {
    const mark = item.querySelector("span");
    const line = drawn("text", { x, y });
    line.append(drawn("tspan", { style: `${mark.getAttribute("style")}; fill: currentColor` }, mark.textContent));
    line.append(drawn("tspan", {}, ` ${textOf(item, "span")}`));
    added.append(line);
    const length = line.getComputedTextLength();
    if (x > size && x + length > width - size) {
      [x, y] = [size, y + 1.5 * size];
      line.setAttribute("x", x);
      line.setAttribute("y", y);
    }
    x += length + 1.5 * size;
  }
  return { added, height: y + 0.8 * size };
}

function drawn(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(text);
  return made;
}
