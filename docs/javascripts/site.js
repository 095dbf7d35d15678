// Explorers on a page are dark when the page is.
const dress = () => {
  const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe[data-explorer]")) {
    frame.src = `${frame.dataset.explorer}#theme=${theme}`;
  }
};
dress();
new MutationObserver(dress).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

// What the theme does not give to readers of screens and to keyboards: names of its parts, and a way into wide tables.
const mend = () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((nav, i) => nav.setAttribute("aria-label", `Code ${i + 1}`));
  for (const nav of document.querySelectorAll(".md-nav__item--nested > nav")) {
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", nav.parentElement.querySelector(".md-ellipsis").textContent.trim());
  }
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) wide.tabIndex = 0;
};
mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
