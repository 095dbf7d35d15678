// Explorers on a page are dark when the page is.
const dress = () => {
  const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe[data-explorer]")) {
    frame.src = `${frame.dataset.explorer}#theme=${theme}`;
  }
};
dress();
new MutationObserver(dress).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

// Names for readers of screens that the theme does not give.
const name = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Code ${i + 1}`));
};
name();
new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
