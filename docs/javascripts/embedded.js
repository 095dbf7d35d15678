// Explorers on a page are dark when the page is.
const dress = () => {
  const theme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe[data-explorer]")) {
    frame.src = `${frame.dataset.explorer}#theme=${theme}`;
  }
};
dress();
new MutationObserver(dress).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
