// Faults of the open page, each as one sentence: what Lighthouse and axe would say of contrast, names, viewport and width.
const faults = [];

function channels(color) {
  const found = color.match(/[\d.]+/g).map(Number);
  return found.length < 4 ? [...found, 1] : found;
}

function luminance([red, green, blue]) {
  const [r, g, b] = [red, green, blue].map((value) => value / 255)
    .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function background(element) {
  for (let one = element; one; one = one.parentElement) {
    const found = channels(getComputedStyle(one).backgroundColor);
    if (found[3] > 0) return found;
  }
  return [255, 255, 255, 1];
}

function contrast(front, back) {
  const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

for (const element of document.body.querySelectorAll("*:not(script):not(style):not(noscript)")) {
  const style = getComputedStyle(element);
  const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (hasText && style.visibility !== "hidden" && element.getClientRects().length) {
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(channels(style.color), background(element));
    if (ratio < (isLarge ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)} of "${element.textContent.trim()}"`);
    if (size < 12) faults.push(`text of ${size} px: "${element.textContent.trim()}"`);
  }
  if (element.getAttribute("role") === "img" && !element.getAttribute("aria-label")) faults.push("an image without a name");
  if (matchMedia("(prefers-reduced-motion: reduce)").matches && parseFloat(style.transitionDuration) > 0) {
    faults.push(`a transition of ${style.transitionDuration} despite reduced motion`);
  }
}
for (const element of document.querySelectorAll("button, a[href], input, select")) {
  if (!(element.textContent.trim() || element.getAttribute("aria-label"))) faults.push(`a ${element.localName} without a name`);
  if (element.tabIndex < 0) faults.push(`a ${element.localName} that the keyboard cannot reach`);
}
const held = getComputedStyle(document.documentElement), card = channels(getComputedStyle(document.querySelector("article")).backgroundColor);
const probe = document.createElement("i");
for (const name of ["--units", "--held"]) {
  probe.style.color = held.getPropertyValue(name);
  document.body.append(probe);
  const ratio = contrast(channels(getComputedStyle(probe).color), card);
  if (ratio < 3) faults.push(`contrast ${ratio.toFixed(2)} of the bars ${name}`);
  probe.remove();
}
if (!document.documentElement.lang) faults.push("no language");
if (!document.title) faults.push("no title");
if (document.querySelectorAll("h1").length !== 1) faults.push("not one main heading");
if (!document.querySelector("main")) faults.push("no main landmark");
if (!document.querySelector("[role=status]")) faults.push("no status that a screen reader says");
if (!/width=device-width/.test(document.querySelector("meta[name=viewport]")?.content ?? "")) faults.push("no viewport");
if (/user-scalable=no|maximum-scale/.test(document.querySelector("meta[name=viewport]")?.content ?? "")) faults.push("no zoom");
const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
if (new Set(ids).size !== ids.length) faults.push("an id twice");
if (document.documentElement.scrollWidth > innerWidth) faults.push(`${document.documentElement.scrollWidth} px wide at ${innerWidth}`);
return faults;
