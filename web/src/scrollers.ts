// Tables wider than their box: the box shows on which side there is more.

const BOX = ".scroller";

function mark(box: HTMLElement): void {
  const rest = box.scrollWidth - box.clientWidth - box.scrollLeft;
  const sides = [box.scrollLeft > 1 ? "left" : "", rest > 1 ? "right" : ""].filter((side) => side !== "").join(" ");
  if (box.dataset["more"] === sides) return;
  if (sides === "") delete box.dataset["more"];
  else box.dataset["more"] = sides;
}

/** Watches every such box below `root`, including future ones. */
export function markScrollers(root: HTMLElement): void {
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest<HTMLElement>(BOX);
      if (box) mark(box);
    }
  });
  const watched = new WeakSet<Element>();
  const watch = () => {
    for (const box of root.querySelectorAll<HTMLElement>(BOX)) {
      // The box changes with the window, its content with the data.
      for (const one of [box, ...box.children]) {
        if (watched.has(one)) continue;
        watched.add(one);
        sizes.observe(one);
      }
    }
  };
  new MutationObserver(watch).observe(root, { childList: true, subtree: true });
  root.addEventListener("scroll", ({ target }) => target instanceof HTMLElement && target.matches(BOX) && mark(target), { capture: true, passive: true });
  watch();
}
