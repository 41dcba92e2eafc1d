// Renders a pasted digest. Everything is inserted as text, never as markup.
const NAMES = {
  breaking: "Breaking changes",
  feat: "Features",
  fix: "Fixes",
  perf: "Performance",
  docs: "Documentation",
  other: "Everything else",
};

const input = document.getElementById("input");
const output = document.getElementById("output");

function add(parent, tag, text) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

function render(digest) {
  add(output, "p", `${digest.title}: ${digest.total} ${digest.total === 1 ? "commit" : "commits"}`);
  for (const { kind, changes } of digest.groups) {
    add(output, "h2", NAMES[kind] ?? kind);
    const list = add(output, "ul");
    for (const { sha, subject } of changes) {
      const item = add(list, "li", `${subject} `);
      if (sha) add(item, "code", sha);
    }
  }
  const authors = digest.authors.map((author) => `${author.name} (${author.commits})`);
  if (authors.length) add(output, "p", `By ${authors.join(", ")}`);
}

document.getElementById("show").addEventListener("click", () => {
  output.replaceChildren();
  try {
    render(JSON.parse(input.value));
  } catch {
    output.replaceChildren();
    add(output, "p", "This is not a digest.");
  }
});
